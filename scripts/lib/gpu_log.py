"""Reads the simulated GPU's log (SIMGPU_LOG): every driver allocation and free, as the driver itself saw
them.
"""

import typing


class Event(typing.NamedTuple):
    """One allocation that began or ended."""

    end: int  # length of the log with this line
    thread: int
    begins: bool
    address: bytes
    size: int
    device: int  # -1: pinned host memory


def parse(line, end):
    _, thread, sign, _, address, size, device = line.split()
    return Event(end, int(thread), sign == b"+", address, int(size), int(device))


def events(path):
    """Yields the log's events; a line that was never finished ends them."""
    end = 0
    with open(path, "rb") as log:
        for line in log:
            if not line.endswith(b"\n"):
                return
            end += len(line)
            yield parse(line, end)


class Alive(dict):
    """What is alive after some events: address to (size, device)."""

    def __init__(self, events=()):
        super().__init__()
        for event in events:
            self.apply(event)

    def apply(self, event):
        if event.begins:
            self[event.address] = (event.size, event.device)
        else:
            del self[event.address]

    def totals(self):
        """Returns bytes per device, without devices that have none."""
        totals = {}
        for size, device in self.values():
            totals[device] = totals.get(device, 0) + size
        return {device: size for device, size in totals.items() if size}
