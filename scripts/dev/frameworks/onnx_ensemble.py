"""ONNX Runtime: an ensemble is dropped after its evaluation, but a hook keeps one of its sessions; mended: that goes."""
import gc

from counting import arguments, step
import onnxserved

TRUTH = {"kind": "residue", "at": ["onnxserved.py # session"], "steps": 80, "bytes_per_step": 0, "holder": []}

options = arguments()
hooks = []


def evaluate_ensemble():
    ensemble = [onnxserved.session() for _ in range(8)]
    hooks.append(ensemble[3].run)
    for _ in range(40):
        for session in ensemble:
            session.run(None, {"x": onnxserved.request()})
        step(8 * 1048576)


def evaluate_one():
    session = onnxserved.session()
    for _ in range(40):
        session.run(None, {"x": onnxserved.request()})
        step(1048576 * (1 + len(hooks)))


evaluate_ensemble()
if options.fixed:
    hooks.clear()
gc.collect()
evaluate_one()
