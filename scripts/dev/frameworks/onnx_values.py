"""ONNX Runtime: the inputs of all requests stay on the device; mended: each goes with its request."""
from counting import arguments, step
import onnxserved
from onnxruntime import OrtValue

TRUTH = {"kind": "growing", "also": ["leak"], "at": ["# served"],
         "steps": 200, "bytes_per_step": 65536, "holder": []}

options = arguments()
session = onnxserved.session()
requests = []
for _ in range(200):
    value = OrtValue.ortvalue_from_numpy(onnxserved.request(), "cuda", 0)  # served
    session.run_with_ort_values(None, {"x": value})
    if not options.fixed:
        requests.append(value)
    step(65536 * len(requests))
