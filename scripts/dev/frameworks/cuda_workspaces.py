"""cuda-python: a workspace is made for each length of text, which differ; mended: lengths are rounded (a warm-up)."""
from cuda.bindings import driver
from cudacalls import begin, check
from counting import arguments, step

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# workspace"], "steps": 150, "bytes_per_step": 262144,
         "holder": ["workspaces"]}

options = arguments()
begin()
workspaces = {}


def workspace(length):
    if length not in workspaces:
        workspaces[length] = check(driver.cuMemAlloc(262144))  # workspace
    return workspaces[length]


for number in range(150):
    length = 100 + number * 37 % 151
    length = -(-length // 64) * 64 if options.fixed else length
    check(driver.cuMemcpyHtoD(workspace(length), bytes(length), length))
    step(262144 * len(workspaces))
