"""Collections whose length the program limits in other words than by comparing it where they grow. No limit is reached."""
import torch
from torch import nn

CONFIG = {"history": 300}


def memo(most):
    store = {}

    def get(key, make):
        if key not in store:
            if len(store) >= most:
                store.pop(next(iter(store)))
            store[key] = make()
        return store[key]

    return get


class ByLabel:
    def __init__(self, per_label):
        self.per_label, self.queues = per_label, {}

    def add(self, label, value):
        queue = self.queues.setdefault(label, [])
        queue.append(value)
        if len(queue) > self.per_label:
            queue.pop(0)


class Bank:
    def __init__(self, most):
        self.most, self.rows = most, []

    @property
    def is_full(self):
        return len(self.rows) >= self.most

    def add(self, value):
        if self.is_full:
            self.rows.pop(0)
        self.rows.append(value)


class Switched:
    def __init__(self, most, drops):
        self.most, self.drops, self.rows = most, drops, []

    def add(self, value):
        self.rows.append(value)
        if not self.drops:
            return
        while len(self.rows) > self.most:
            self.rows.pop(0)


class Pile:
    def __init__(self):
        self.rows = []

    def add(self, value):
        self.rows.append(value)

    def __len__(self):
        return len(self.rows)


def main():
    get, by_label, by_step = memo(400), ByLabel(100), ByLabel(5)
    bank, growing, switched_on, switched_off = Bank(500), Bank(20), Switched(300, True), Switched(300, False)
    recent, history, seen, slots, odd = [], [], [], {}, {}
    pile = Pile()
    window = 350
    network = nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    for step in range(150):
        x = torch.empty(16, 64, device="cuda")
        optimizer.zero_grad()
        network(x).mean().backward()
        optimizer.step()
        get(step, lambda: torch.empty(1000, device="cuda"))  # closure
        by_label.add(step % 3, torch.empty(2000, device="cuda"))  # label
        bank.add(torch.empty(3000, device="cuda"))  # property
        by_step.add(step, torch.empty(4000, device="cuda"))  # step
        growing.most += 1
        growing.add(torch.empty(7000, device="cuda"))  # moved
        switched_on.add(torch.empty(8000, device="cuda"))  # on
        switched_off.add(torch.empty(9000, device="cuda"))  # off
        recent.append(torch.empty(5000, device="cuda"))  # computed
        if len(recent) > 2 * window:
            recent.pop(0)
        history = (history + [torch.empty(6000, device="cuda")])[-CONFIG["history"] :]  # cut
        slots[step % 400] = torch.empty(10000, device="cuda")  # slot
        odd[step * 400 + step % 400] = torch.empty(11000, device="cuda")  # odd
        seen.append(torch.empty(12000, device="cuda"))  # emptied
        if (step + 1) % 300 == 0:
            seen.clear()
        pile.add(torch.empty(13000, device="cuda"))  # caller
        if len(pile) > 450:
            pile.rows.pop(0)
        print(f"step {step}", flush=True)


main()
