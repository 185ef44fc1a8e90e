"""Prints what the simulated GPU's libraries say of the machine: NVML, cuDNN, and the driver beside them.

    machine.py count      how many devices PyTorch counts, which initialises nothing
    machine.py cudnn      the versions that PyTorch compares
    machine.py nvml       NVML's answers beside the driver's, as `name value`
    machine.py out        the words of PyTorch's error when memory runs out
"""

import ctypes
import os
import sys

import torch


def nvml():
    library = ctypes.CDLL("libnvidia-ml.so.1")
    number, device, room = ctypes.c_uint(), ctypes.c_void_p(), ctypes.create_string_buffer(96)
    print("before", library.nvmlDeviceGetCount_v2(ctypes.byref(number)))
    print("init", library.nvmlInit_v2())
    assert library.nvmlDeviceGetCount_v2(ctypes.byref(number)) == 0
    print("count", number.value)
    kept = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
    properties = torch.cuda.get_device_properties(0)
    bus = b"%08x:%02x:%02x.0" % (properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id)
    assert library.nvmlDeviceGetHandleByPciBusId_v2(bus, ctypes.byref(device)) == 0
    assert library.nvmlDeviceGetIndex(device, ctypes.byref(number)) == 0
    print("index", number.value)
    assert library.nvmlDeviceGetUUID(device, room, 96) == 0
    print("uuid", room.value.decode() == f"GPU-{properties.uuid}")
    memory = (ctypes.c_ulonglong * 3)()
    assert library.nvmlDeviceGetMemoryInfo(device, memory) == 0
    free, total = torch.cuda.mem_get_info()
    print("memory", list(memory) == [total, free, total - free])
    processes = (ctypes.c_ulonglong * 8)()
    number.value = 4
    assert library.nvmlDeviceGetComputeRunningProcesses(device, ctypes.byref(number), processes) == 0
    print("processes", number.value, processes[0] & 0xFFFFFFFF == os.getpid(), processes[1] == total - free)
    number.value = 0
    print("no room", library.nvmlDeviceGetComputeRunningProcesses(device, ctypes.byref(number), None), number.value)
    print("fabric", library.nvmlDeviceGetGpuFabricInfoV(device, memory))
    print("unknown", library.nvmlDeviceGetHandleByPciBusId_v2(b"00000000:7f:00.0", ctypes.byref(device)))
    print("end", library.nvmlShutdown())
    del kept


def out():
    kept = torch.empty(1 << 20, device="cuda")
    try:
        kept = torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        print(error)


if sys.argv[1] == "count":
    print(torch.cuda.device_count(), torch.cuda.is_initialized())
elif sys.argv[1] == "cudnn":
    print(torch._C._cudnn.getRuntimeVersion(), torch.backends.cudnn.version())
elif sys.argv[1] == "nvml":
    nvml()
else:
    out()
