"""Reads a memory snapshot with PyTorch's own viewer, and prints what it says as JSON.

    read_snapshot.py SNAPSHOT.pickle
"""

import json
import pickle
import sys

from torch.cuda import _memory_viz

with open(sys.argv[1], "rb") as file:
    snapshot = pickle.load(file)
# It asserts that blocks and segments add up.
_memory_viz.segsum(snapshot)
_memory_viz.trace(snapshot)
blocks, reserved, last = [], 0, -1
for segment in snapshot["segments"]:
    assert last <= segment["address"], "segments overlap"
    last = segment["address"] + segment["total_size"]
    at = segment["address"]
    for block in segment["blocks"]:
        assert block["address"] == at, "blocks lie one behind the other"
        at += block["size"]
        if block["state"] == "active_allocated":
            frames = [[f["filename"], f["line"], f["name"]] for f in block["frames"]]
            blocks.append({"device": segment["device"], "bytes": block["size"], "frames": frames})
    assert at == last
    reserved += segment["total_size"]


def played_back(device, entries):
    """As PyTorch's viewer does it: from the end to the beginning, where every block must lie in a segment."""
    segments = {s["address"]: s["total_size"] for s in snapshot["segments"] if s["device"] == device}
    blocks = {}
    for segment in snapshot["segments"]:
        if segment["device"] == device:
            blocks |= {b["address"]: b["size"] for b in segment["blocks"] if b["state"] == "active_allocated"}
    for entry in reversed(entries):
        action, address, size = entry["action"], entry.get("addr"), entry["size"]
        if action == "alloc":
            assert blocks.pop(address) == size
        elif action == "free_completed":
            assert address not in blocks, "two blocks at one address"
            assert any(a <= address and address + size <= a + s for a, s in segments.items()), "a block in no segment"
            blocks[address] = size
        elif action in ("segment_alloc", "segment_map"):
            start = next(a for a, s in segments.items() if a <= address and address + size <= a + s)
            length = segments.pop(start)
            assert action == "segment_map" or (start, length) == (address, size)
            if start < address:
                segments[start] = address - start
            if address + size < start + length:
                segments[address + size] = start + length - address - size
            assert not any(address <= b < address + size for b in blocks), "a segment goes from under a block"
        elif action in ("segment_free", "segment_unmap"):
            if action == "segment_unmap":
                before = next((a for a, s in segments.items() if a + s == address), None)
                if before is not None:
                    address, size = before, segments.pop(before) + size
                size += segments.pop(address + size, 0)
            segments[address] = size


counts = []
for entries in snapshot["device_traces"]:
    held, counted = {}, {}
    for entry in entries:
        counted[entry["action"]] = counted.get(entry["action"], 0) + 1
        if entry["action"] == "alloc":
            assert entry["addr"] not in held, "allocated twice"
            held[entry["addr"]] = entry["size"]
        elif entry["action"] == "free_completed":
            assert held.pop(entry["addr"], entry["size"]) == entry["size"]
    times = [entry["time_us"] for entry in entries]
    assert times == sorted(times)
    played_back(len(counts), entries)
    counts.append(counted | {"held": sum(held.values())})
told = {"blocks": blocks, "reserved": reserved, "traces": counts, "plot": _memory_viz.segment_plot(snapshot)}
print(json.dumps(told))
