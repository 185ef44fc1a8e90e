"""ONNX Runtime: the model is reloaded every 10 requests, and the old one kept; mended: it is replaced."""
from counting import arguments, step
from onnxruntime import InferenceSession
import onnxserved

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# loaded"], "steps": 120, "bytes_per_step": 1048576, "every": 10, "holder": []}

options = arguments()
models = {}
for number in range(120):
    if number % 10 == 0:
        models[0 if options.fixed else number] = InferenceSession(onnxserved.model(), providers=["CUDAExecutionProvider"])  # loaded
    model = models[max(models)]
    model.run(None, {"x": onnxserved.request()})
    step(1048576 * len(models))
