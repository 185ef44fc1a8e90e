"""Asks the driver for entry points both ways: by dlsym and by cuGetProcAddress_v2. Prints one JSON line.

    python3 entry_points.py NAME:SYMBOL:VERSION:PER_THREAD ...
"""
import ctypes
import json
import sys

driver = ctypes.CDLL("libcuda.so.1")
status = driver.cuInit(0)
version = ctypes.c_int()
driver.cuDriverGetVersion(ctypes.byref(version))
ask = driver.cuGetProcAddress_v2
same, different, absent = [], [], []
for row in sys.argv[1:]:
    name, symbol, since, per_thread = row.split(":")
    try:
        direct = ctypes.cast(getattr(driver, symbol), ctypes.c_void_p).value
    except AttributeError:
        direct = None
    pointer, found = ctypes.c_void_p(), ctypes.c_int()
    flags = 2 if per_thread == "true" else 0
    code = ask(name.encode(), ctypes.byref(pointer), int(since), ctypes.c_ulonglong(flags), ctypes.byref(found))
    if direct is None or code != 0 or not pointer.value:
        absent.append(symbol)
    elif direct == pointer.value:
        same.append(symbol)
    else:
        different.append(symbol)
print(json.dumps({"init": status, "driver": version.value, "same": same, "different": different, "absent": absent}))
