"""cuda-python: a pipeline of cuda.core keeps a buffer for each frame it has shown; mended: it is closed."""
from cuda.core import Device
from counting import arguments, step

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# buffer"], "steps": 120, "bytes_per_step": 131072, "holder": ["shown"]}


class Pipeline:
    def __init__(self):
        self.device = Device()
        self.device.set_current()
        self.stream, self.shown = self.device.create_stream(), []

    def show(self):
        buffer = self.device.allocate(131072, stream=self.stream)  # buffer
        self.shown.append(buffer)
        self.stream.sync()

    def run(self, frames, fixed):
        while frames:
            self.show()
            if fixed:
                self.shown.pop().close()
            step(131072 * len(self.shown))
            frames -= 1


Pipeline().run(120, arguments().fixed)
