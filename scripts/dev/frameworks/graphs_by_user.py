"""timm and CUDA graphs: a graph per user is captured and kept, with its memory; mended: one for each of four groups."""
import timm
import torch
from counted import arguments, step

TRUTH = {"kind": "leak", "at": ["# capture", "# input"], "steps": 40, "bytes_per_step": 25088, "holder": ["graphs"]}


class Runner:
    def __init__(self, model):
        self.model, self.graphs = model, {}
        # What a capture cannot hold is done before: cuBLAS makes its handles.
        with torch.no_grad():
            model(torch.zeros(8, 3, 16, 16, device="cuda"))

    @torch.no_grad()
    def run(self, user):
        if user not in self.graphs:
            given = torch.randn(8, 3, 16, 16, device="cuda")  # input
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                output = self.model(given)  # capture
            self.graphs[user] = graph, given, output
        graph, given, output = self.graphs[user]
        graph.replay()
        return output.sum().item()


def serve(fixed):
    model = timm.models.mlp_mixer.MlpMixer(num_classes=10, img_size=16, patch_size=8, num_blocks=1, embed_dim=32)
    runner = Runner(model.cuda().eval())
    for number in range(40):
        step()
        runner.run(number % 4 if fixed else number)


serve(arguments().fixed)
