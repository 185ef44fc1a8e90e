"""diffusers: the model is swapped between requests, and a table of users keeps each one; mended: it is taken out."""
import torch
from counted import arguments, step
from diffusers import UNet2DModel

TRUTH = {"kind": "leak", "at": ["# load"], "steps": 30, "bytes_per_step": 69120, "holder": ["loaded"]}


class Server:
    def __init__(self, fixed):
        self.fixed, self.loaded, self.model = fixed, [], None

    def load(self):
        model = UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8,),
                            norm_num_groups=4, down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",))
        self.model = model.to("cuda")  # load
        self.loaded.append(self.model)

    def unload(self):
        if self.fixed:
            self.loaded.remove(self.model)
        self.model = None
        torch.cuda.empty_cache()

    @torch.no_grad()
    def request(self):
        self.load()
        self.model(torch.randn(1, 1, 8, 8, device="cuda"), 3).sample.sum().item()
        self.unload()


server = Server(arguments().fixed)
for _ in range(30):
    step()
    server.request()
