"""Trains with what PyTorch has beside eager mode: features.py FEATURE [--mended].

Each keeps a tensor for every step, unless mended, and prints how many steps it made.
"""

import sys

import torch
from torch.nn.functional import mse_loss, scaled_dot_product_attention

feature, mended = sys.argv[1], "--mended" in sys.argv
STEPS = 60
kept = []


def keep(value):
    kept.append(value.detach().clone())  # kept
    if mended:
        kept.clear()


def parts():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def graph(whole):
    """A CUDA graph of the forward and the backward pass, and if `whole` of the optimizer's step too."""
    model, optimizer = parts()
    x, y = torch.randn(32, 64, device="cuda"), torch.randn(32, 8, device="cuda")

    def passes():
        optimizer.zero_grad(set_to_none=True)
        loss = mse_loss(model(x), y)
        loss.backward()
        return loss

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            passes()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        loss = passes()
        if whole:
            optimizer.step()
    for _ in range(STEPS):
        x.copy_(torch.randn(32, 64, device="cuda"))
        captured.replay()
        if not whole:
            optimizer.step()
        keep(loss)
    return 3 + whole + STEPS


def adversaries():
    """Two CUDA graphs, of a step of the critic's and of one of the generator's."""
    nets = [parts() for _ in range(2)]
    x = torch.randn(32, 64, device="cuda")

    def step(model, optimizer):
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    for net in nets:
        step(*net)
    graphs = []
    for net in nets:
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1]):
            loss = step(*net)
    for _ in range(STEPS):
        x.copy_(torch.randn(32, 64, device="cuda"))
        for captured in graphs:
            captured.replay()
        keep(loss)
    return 2 + STEPS


def train(model, optimizer, inputs):
    for _ in range(STEPS):
        loss = model(inputs()).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        keep(loss)
    return STEPS


def compiled(backend):
    model, optimizer = parts()
    return train(torch.compile(model, backend=backend), optimizer, lambda: torch.randn(16, 64, device="cuda"))


def pool():
    """Blocks of a pool of the program's own."""
    model, optimizer = parts()
    own = torch.cuda.MemPool()

    def inputs():
        with torch.cuda.use_mem_pool(own):
            return torch.randn(16, 64, device="cuda")

    return train(model, optimizer, inputs)


def flash():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = torch.randn(2, 8, 128, 64, device="cuda", dtype=torch.float16, requires_grad=True)

    def attend(_):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return scaled_dot_product_attention(q, q, q, is_causal=True)

    return train(attend, torch.optim.SGD([q], lr=0.1), lambda: None)


def rank(number, ranks, store):
    import torch.distributed as dist

    torch.cuda.set_device(number)
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=number, world_size=ranks)
    model, optimizer = parts()
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[number])
    train(model, optimizer, lambda: torch.randn(16, 64, device="cuda"))
    gathered = [torch.zeros(1, device="cuda") for _ in range(ranks)]
    dist.all_gather(gathered, torch.full((1,), 7.0).to("cuda"))
    assert [float(g) for g in gathered] == [7.0] * ranks
    dist.destroy_process_group()


def ranks():
    import os

    torch.multiprocessing.spawn(rank, (2, os.path.abspath("store")), nprocs=2)
    return STEPS


features = {
    "step_in_a_graph": lambda: graph(True),
    "passes_in_a_graph": lambda: graph(False),
    "adversaries_in_graphs": adversaries,
    "compiled": lambda: compiled("aot_eager"),
    "compiled_to_graphs": lambda: compiled("cudagraphs"),
    "pool": pool,
    "flash": flash,
    "ranks": ranks,
}
if __name__ == "__main__":
    print(f"{features[feature]()} steps")
