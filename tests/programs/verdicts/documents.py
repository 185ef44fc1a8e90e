"""Documents sorted by length, encoded one by one: the variables that have the current one get larger values, and keep none."""

import torch
from torch import nn

encoder = nn.Sequential(nn.Linear(64, 64), nn.Tanh()).cuda().eval()
documents = sorted([torch.randn(20 + 7 * i, 64) for i in range(120)], key=len)


class Encoder:
    def __init__(self):
        self.document = None

    @torch.no_grad()
    def encode(self, document):
        self.document = document.cuda()
        return encoder(self.document).mean(0)


encoders = Encoder()
vectors = []
for document in documents:
    vector = encoders.encode(document)
    vectors.append(vector.cpu())
    print(f"step {len(vectors)}", flush=True)
