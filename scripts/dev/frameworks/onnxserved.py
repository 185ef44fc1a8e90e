"""A small model for ONNX Runtime on the GPU."""
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROWS, WIDTH = 64, 256


if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
    raise ModuleNotFoundError("onnxruntime is installed without CUDA")


def model():
    shape = ["n", WIDTH]
    weights = numpy_helper.from_array(np.ones((WIDTH, WIDTH), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])], "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], [weights],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 10
    return made.SerializeToString()


def session():
    made = onnxruntime.InferenceSession(model(), providers=["CUDAExecutionProvider"])  # session
    assert made.get_providers()[0] == "CUDAExecutionProvider"
    return made


def request():
    return np.zeros((ROWS, WIDTH), np.float32)
