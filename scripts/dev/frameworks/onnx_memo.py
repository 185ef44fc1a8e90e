"""ONNX Runtime: embeddings are remembered by text and time, so none is found again; mended: by text, the newest 32."""
import functools

from counting import arguments, step
import onnxserved
from onnxruntime import OrtValue

TRUTH = {"kind": "growing", "also": ["leak"], "at": ["# embedded"], "steps": 200, "bytes_per_step": 65536, "holder": []}

options = arguments()
session = onnxserved.session()


@functools.lru_cache(maxsize=32 if options.fixed else None)
def embedding(text, time):
    found = session.run(None, {"x": onnxserved.request()})[0]
    return OrtValue.ortvalue_from_numpy(found, "cuda", 0)  # embedded


for number in range(200):
    embedding(f"text {number % 50}", 0 if options.fixed else number).shape()
    step(65536 * embedding.cache_info().currsize)
