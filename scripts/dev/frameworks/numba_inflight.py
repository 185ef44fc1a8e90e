"""numba: a worker keeps each job with its event until it is done, and never looks; mended: it looks after each job."""
import numpy as np
from counting import arguments, step
from numba import cuda

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# job"], "steps": 140, "bytes_per_step": 65536, "holder": ["flying"]}


class Worker:
    def __init__(self, fixed):
        self.fixed, self.flying, self.streams = fixed, [], [cuda.stream() for _ in range(2)]

    def begin(self, number):
        stream, done = self.streams[number % 2], cuda.event()
        job = cuda.to_device(np.zeros(16384, np.float32), stream=stream)  # job
        done.record(stream)
        self.flying.append((done, job))

    def run(self, jobs):
        number = 0
        while number < jobs:
            self.begin(number)
            if self.fixed:
                self.flying = [(done, job) for done, job in self.flying if not done.query()]
            step(65536 * len(self.flying))
            number += 1


Worker(arguments().fixed).run(140)
