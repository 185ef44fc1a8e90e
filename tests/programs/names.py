"""Code, files and labels with names that would steer whoever prints them: names.py LIBRARY STEPS"""

import ctypes
import sys

cudart = ctypes.CDLL(sys.argv[1])
cudart.cudaMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]
program = ctypes.CDLL(None)

NAMES = [
    "a\nb",
    "\x1b]0;title\x07",
    "</script><script>alert(1)</script>",
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-1-1",
    "@SUM(1)",
    "%0A::error::x",
    "\u202egnp.exe",
    "\u2028::error::line",
    "::set-output name=x::y",
    "##[error]old",
    "##vso[task.complete result=Failed;]",
    "word " * 30 + "::error::wrapped",
    "\r\n::warning::hi",
    "\x9b31m",
    "' onmouseover='alert(1)",
]


def allocate(kept):
    pointer = ctypes.c_void_p()
    cudart.cudaMalloc(ctypes.byref(pointer), 512)
    kept.append(pointer)


functions = []
for name in NAMES:
    space = {}
    exec(compile("def f(allocate, kept):\n  allocate(kept)\n", name, "exec"), space)
    changed = {"co_name": name}
    if sys.version_info >= (3, 11):
        changed["co_qualname"] = name
    space["f"].__code__ = space["f"].__code__.replace(**changed)
    functions.append(space["f"])

kept = []
for step in range(int(sys.argv[2])):
    for function in functions:
        function(allocate, kept)
    program.leaktrace_mark(b"\x1b[31mred\x1b[0m </script>\n::error::mark\r=1+1")
    program.leaktrace_step(b"=HYPERLINK(\x1b]0;t\x07)\n::error::step")
