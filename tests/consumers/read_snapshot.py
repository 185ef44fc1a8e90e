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
stats = _memory_viz.segsum(snapshot)
trace = _memory_viz.trace(snapshot)
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
    counts.append(counted | {"held": sum(held.values())})
print(json.dumps({"stats": stats, "trace": len(trace), "blocks": blocks, "reserved": reserved, "traces": counts}))
