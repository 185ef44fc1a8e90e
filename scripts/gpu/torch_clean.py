"""Transformer training with convolutions beside it: work spaces of cuBLAS and cuDNN, momentum, no leak."""
import torch

torch.backends.cudnn.benchmark = True
layer = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)
model = torch.nn.ModuleDict(
    {
        "encoder": torch.nn.TransformerEncoder(layer, 3),
        "images": torch.nn.Sequential(torch.nn.Conv2d(3, 32, 5), torch.nn.ReLU(), torch.nn.Conv2d(32, 16, 3)),
    }
).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(60):
    words = torch.randn(8, 16 + 8 * (step % 5), 256, device="cuda")
    images = torch.randn(4, 3, 64, 64, device="cuda")
    optimizer.zero_grad()
    loss = model["encoder"](words).mean() + model["images"](images).mean()
    loss.backward()
    optimizer.step()
torch.cuda.synchronize()
print("ALLOCATED", torch.cuda.memory_allocated())
