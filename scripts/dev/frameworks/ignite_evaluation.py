"""ignite: the evaluator that runs after each epoch keeps its outputs; mended: what it needs of them."""
import torch
from counted import arguments, step
from ignite.engine import Engine, Events
from torch import nn

TRUTH = {"kind": "leak", "at": ["# made"], "steps": 168, "bytes_per_step": 1024, "holder": ["kept"],
         "every": 3.5}


def main(fixed):
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    kept = []

    def update(engine, batch):
        step()
        optimizer.zero_grad()
        loss = model(batch.cuda()).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    @torch.no_grad()
    def evaluate(engine, batch):
        step()
        outputs = model(batch.cuda())  # made
        kept.append(outputs.argmax(-1).tolist() if fixed else outputs)
        return outputs.mean().item()

    def batches(count):
        return [torch.randn(16, 64) for _ in range(count)]

    trainer, evaluator = Engine(update), Engine(evaluate)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda engine: evaluator.run(batches(8)))
    trainer.run(batches(20), max_epochs=6)


main(arguments().fixed)
