"""ONNX Runtime: answers stay on the device, bound to each request; mended: in a window of 8.

An answer keeps its binding, which keeps the copy of its input: the addresses of answers are 131,072 bytes apart, and 65,536
where the binding's inputs are cleared.
"""
import collections

from counting import arguments, step
import onnxserved

TRUTH = {"kind": "growing", "also": ["leak"], "at": ["# answered"], "steps": 160, "bytes_per_step": 131072, "holder": []}

options = arguments()
session = onnxserved.session()
answers = collections.deque(maxlen=8 if options.fixed else None)


def serve(request):
    binding = session.io_binding()
    binding.bind_cpu_input("x", request)
    binding.bind_output("y", "cuda")
    session.run_with_iobinding(binding)  # answered
    return binding.get_outputs()[0]


for _ in range(160):
    answers.append(serve(onnxserved.request()))
    step(131072 * len(answers))
