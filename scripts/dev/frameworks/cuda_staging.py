"""cuda-python: every tenth step pins host memory for its log (a staircase); mended: one buffer serves all."""
from cuda.bindings import driver
from cudacalls import begin, check
from counting import arguments, step

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# staging"], "steps": 200, "bytes_per_step": 65536, "every": 10,
         "holder": ["pages"]}


class Log:
    def __init__(self):
        self.device, self.pages = check(driver.cuMemAlloc(65536)), []

    def page(self):
        if not (options.fixed and self.pages):
            self.pages.append(check(driver.cuMemHostAlloc(65536, 0)))  # staging
        return self.pages[-1]

    def write(self):
        check(driver.cuMemcpyDtoH(self.page(), self.device, 65536))


options = arguments()
begin()
log = Log()
for number in range(200):
    check(driver.cuMemcpyHtoD(log.device, bytes([number]) * 65536, 65536))
    if number % 10 == 0:
        log.write()
    step(65536 * len(log.pages))
