"""Runs a program after a word of its interpreter's was changed: of what it says of its own layout (`_PyRuntime` begins
with it from 3.13 on), or of a type.

    other_offsets.py SYMBOL WORD DIFFERENCE PROGRAM [ARGUMENT ...]
"""

import ctypes
import runpy
import sys

symbol, word, difference, *sys.argv = sys.argv[1:]
words = (ctypes.c_int64 * 128).in_dll(ctypes.pythonapi, symbol)
words[int(word)] += int(difference)
runpy.run_path(sys.argv[0], run_name="__main__")
