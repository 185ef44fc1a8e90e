"""ONNX Runtime: answers are cached by request, each of which is new; mended: by one of 16 questions, a cache that fills."""
from counting import arguments, step
import onnxserved
from onnxruntime import OrtValue

TRUTH = {"kind": "growing", "also": ["leak"], "at": ["# cached"], "steps": 240, "bytes_per_step": 65536, "holder": []}

options = arguments()
session = onnxserved.session()
cache = {}
for number in range(240):
    question = number % 16 if options.fixed else number
    answer = session.run(None, {"x": onnxserved.request()})[0]
    if question not in cache:
        cache[question] = OrtValue.ortvalue_from_numpy(answer, "cuda", 0)  # cached
    step(65536 * len(cache))
