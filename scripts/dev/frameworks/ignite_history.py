"""ignite: a handler keeps the output of every iteration, which is a loss with its graph; mended: a number."""
import torch
from counted import arguments, step
from ignite.engine import Engine, Events
from torch import nn

TRUTH = {"kind": "leak", "at": ["# loss"], "steps": 120, "bytes_per_step": 512, "holder": ["history"]}


def main(fixed):
    model = nn.Sequential(nn.Linear(32, 64), nn.Sigmoid(), nn.Linear(64, 8)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    history = []

    def update(engine, batch):
        step()
        optimizer.zero_grad()
        outputs = model(batch.cuda())
        loss = outputs.square().mean()  # loss
        loss.backward()
        optimizer.step()
        return loss.item() if fixed else loss

    trainer = Engine(update)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: history.append(engine.state.output))
    trainer.run([torch.randn(32, 32) for _ in range(20)], max_epochs=6)


main(arguments().fixed)
