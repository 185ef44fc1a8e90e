"""ignite: batches that fail are kept as exceptions, whose tracebacks hold the frames; mended: as their messages."""
import torch
from counted import arguments, step
from ignite.engine import Engine, Events
from torch import nn

# The optimizer ends the steps: a batch that fails before it belongs to the step after it.
TRUTH = {"kind": "leak", "at": ["# batch", "# outputs"], "steps": 90, "bytes_per_step": 16384, "holder": ["failures"],
         "every": 3}

options = arguments()
model = nn.Linear(32, 32).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
failures = []


def update(engine, batch):
    batch = batch.cuda()  # batch
    outputs = model(batch).relu()  # outputs
    if engine.state.iteration % 4 == 0:
        raise ValueError(f"no label for batch {engine.state.iteration}")
    optimizer.zero_grad()
    outputs.mean().backward()
    optimizer.step()
    step()


def guarded(engine, batch):
    try:
        update(engine, batch)
    except ValueError as error:
        failures.append(str(error) if options.fixed else error)


trainer = Engine(guarded)
trainer.run([torch.randn(64, 32) for _ in range(30)], max_epochs=4)
