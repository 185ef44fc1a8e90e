"""Requests, each of which has a CUDA graph of its own: the graph's pool reserves far more than its blocks take."""

import torch

torch.set_grad_enabled(False)
model = torch.nn.Linear(64, 64).cuda()
graphs = {}


def answer(n, x):
    if n not in graphs:
        given, graph = torch.zeros(8, 64, device="cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = model(given)
        graphs[n] = graph, given, out
    graph, given, out = graphs[n]
    given.copy_(x)
    graph.replay()
    return out.cpu()


for n in range(100):
    answer(n, torch.randn(8, 64))
