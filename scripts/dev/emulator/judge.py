"""Judges the JSON report of leak.py, from standard input:  judge.py SOURCE leaks|held|keeps-nothing

held: leaks, and the holder was searched for."""

import json
import sys

report = json.load(sys.stdin)
source = open(sys.argv[1]).read().splitlines()
line = next(n for n, text in enumerate(source, 1) if "cuMemAlloc_v2" in text)
wrong = []


def expect(what, found, wanted):
    if found != wanted:
        wrong.append(f"{what}: {found!r}, not {wanted!r}")


loop = next(n for n, text in enumerate(source, 1) if "# the loop" in text) - 1
expect("exit status", report["program"]["exit_status"], 0)
expect("steps", (report["steps"]["count"], report["steps"]["source"]), (60, "loop"))
expect("loop", [int(at.rsplit(":", 1)[1]) for at in report["steps"]["loop_locations"]], [loop])
findings = report["findings"]
if sys.argv[2] == "keeps-nothing":
    expect("findings", findings, [])
else:
    held = sys.argv[2] == "held"
    expect("kinds", [f["kind"] for f in findings], ["leak"])
    for finding in findings:
        expect("bytes per step", finding["bytes_per_step"], 1000)
        place = finding["sites"][0]["allocated_at"]
        expect("line", (place["line"], place["function"]), (line, "Memory.__init__"))
        expect("holders", [h["path"] for h in finding["holders"]], ["__main__.history[*]"] if held else [])
    told = any("process_vm_readv is forbidden" in gap for gap in report["coverage"]["gaps"])
    expect("why nobody is named", told, not held)
for text in wrong:
    print("  " + text)
sys.exit(bool(wrong))
