"""Code that is named by strings of the program's own class, and code with a very long line table: odd_code.py LIBRARY"""

import ctypes
import sys

cudart = ctypes.CDLL(sys.argv[1])
cudart.cudaMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]
program = ctypes.CDLL(None)


class Text(str):
    pass


class Name(Text):
    pass


def allocate(kept):
    pointer = ctypes.c_void_p()
    cudart.cudaMalloc(ctypes.byref(pointer), 512)
    kept.append(pointer)


def made(file, name):
    space = {}
    exec(compile("def f(allocate, kept):\n  allocate(kept)\n", file, "exec"), space)
    changed = {"co_name": name}
    if sys.version_info >= (3, 11):
        changed["co_qualname"] = name
    space["f"].__code__ = space["f"].__code__.replace(**changed)
    return space["f"]


def with_lines(function, count):
    code = function.__code__
    table = "co_linetable" if sys.version_info >= (3, 10) else "co_lnotab"
    function.__code__ = code.replace(**{table: getattr(code, table) + bytes(count)})
    return function


named = made(Name("named.py"), Name("in_class"))
wide = made(Name("\u4e3b.py"), Name("\U0001f600"))
long = with_lines(made("long.py", "with_long_table"), 150000)

kept = []
# The very first stack that is taken.
named(allocate, kept)
program.leaktrace_step(None)
for step in range(1000):
    named(allocate, kept)
    wide(allocate, kept)
    long(allocate, kept)
    program.leaktrace_step(None)
program.leaktrace_mark(b"x" * 200000)
