"""ONNX Runtime: a server logs what failed, and the tracebacks hold the requests; mended: the log is sent off every 24."""
import collections
import time

import numpy as np
from counting import arguments, step
import onnxserved
from onnxruntime import OrtValue

TRUTH = {"kind": "growing", "also": ["leak"], "at": ["# request"], "steps": 200, "bytes_per_step": 65536, "holder": []}


class Server:
    def __init__(self, fixed):
        self.fixed, self.session, self.log = fixed, onnxserved.session(), []
        self.queue = collections.deque(onnxserved.request() for _ in range(200))

    def answer(self, x):
        request = OrtValue.ortvalue_from_numpy(x, "cuda", 0)  # request
        answer = self.session.run_with_ort_values(None, {"x": request})[0].numpy()
        if not np.any(answer):
            raise ValueError("an empty answer")
        return answer

    def serve(self):
        while self.queue:
            try:
                self.answer(self.queue.popleft())
            except ValueError as error:
                self.log.append(error)
            if self.fixed and len(self.log) == 24:
                self.log.clear()
            time.sleep(0.0005)
            step(65536 * len(self.log))


Server(arguments().fixed).serve()
