"""cuda-python: each request adds a handler that has its buffer's address, and none is taken off; mended: each is, when it ran."""
from cuda.bindings import driver
from cudacalls import begin, check
from counting import arguments, step

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# answer"], "steps": 120, "bytes_per_step": 65536, "holder": ["handlers"]}


class Server:
    def __init__(self):
        self.handlers = []

    def request(self, number):
        address = int(check(driver.cuMemAlloc(65536)))  # answer

        def answer():
            check(driver.cuMemcpyHtoD(address, bytes([number]) * 65536, 65536))
            return address

        self.handlers.append(answer)
        answer()


options = arguments()
begin()
server = Server()
for number in range(120):
    server.request(number)
    if options.fixed:
        check(driver.cuMemFree(server.handlers.pop()()))
    step(65536 * len(server.handlers))
