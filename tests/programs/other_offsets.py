"""Runs a program after a word of its interpreter's was changed: of what it says of its own layout (`_PyRuntime` begins
with it from 3.13 on), or of a type. With `Py_GetVersion` as the symbol, the text of its version becomes WORD.

    other_offsets.py SYMBOL WORD DIFFERENCE PROGRAM [ARGUMENT ...]
"""

import ctypes
import runpy
import sys

symbol, word, difference, *sys.argv = sys.argv[1:]
if symbol == "Py_GetVersion":
    version = ctypes.pythonapi.Py_GetVersion
    version.restype = ctypes.c_void_p
    ctypes.memmove(version(), word.encode() + b"\0", len(word) + 1)
else:
    words = (ctypes.c_int64 * 128).in_dll(ctypes.pythonapi, symbol)
    words[int(word)] += int(difference)
runpy.run_path(sys.argv[0], run_name="__main__")
