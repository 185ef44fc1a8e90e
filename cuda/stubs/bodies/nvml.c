/* NVML: the devices of the machine, whatever CUDA_VISIBLE_DEVICES hides, and what this process uses of them. What a
 * device that does not exist has no figures for (NVLink, fabric, temperature, clocks, MIG) is not supported. It asks the
 * simulated driver, and initialises nothing there. */

#include <stdio.h>
#include <unistd.h>

enum {
    UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
};

/* As driver/src/device/management.rs has it. */
struct physical { uint64_t memory, used; unsigned char uuid[16]; unsigned bus; int cc[2], version; };

static unsigned (*describe)(unsigned number, struct physical *out);
static int initialised;

/* ---- the library ---------------------------------------------------------------------------------------- */

SIM(int) nvmlInit_v2(void) {
    if (!describe) {
        void *library = dlopen("libcuda.so.1", RTLD_LAZY);
        describe = library ? (unsigned (*)(unsigned, struct physical *))dlsym(library, "simgpu_physical_device") : NULL;
    }
    if (!describe) return DRIVER_NOT_LOADED;
    __atomic_add_fetch(&initialised, 1, __ATOMIC_ACQ_REL);
    return 0;
}

SIM(int) nvmlInit(void) { return nvmlInit_v2(); }
SIM(int) nvmlInitWithFlags(unsigned flags) { return nvmlInit_v2(); }

SIM(int) nvmlShutdown(void) {
    if (__atomic_sub_fetch(&initialised, 1, __ATOMIC_ACQ_REL) >= 0) return 0;
    __atomic_add_fetch(&initialised, 1, __ATOMIC_ACQ_REL);
    return UNINITIALIZED;
}

SIM(const char *) nvmlErrorString(int result) {
    switch (result) {
    case 0: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    default: return "Unknown Error";
    }
}

static int put(char *out, unsigned room, const char *text) {
    if (!out) return INVALID_ARGUMENT;
    if (strlen(text) >= room) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return 0;
}

static unsigned count(void) { return initialised > 0 ? describe(~0u, NULL) : 0; }

/* CUDA 13.0 came with the drivers of branch 580. */
SIM(int) nvmlSystemGetDriverVersion(char *out, unsigned room) {
    return initialised > 0 ? put(out, room, "580.0") : UNINITIALIZED;
}
SIM(int) nvmlSystemGetNVMLVersion(char *out, unsigned room) {
    return initialised > 0 ? put(out, room, "13.580.0") : UNINITIALIZED;
}
SIM(int) nvmlSystemGetCudaDriverVersion(int *version) {
    struct physical device;
    if (initialised <= 0) return UNINITIALIZED;
    if (!version) return INVALID_ARGUMENT;
    *version = describe(0, &device) ? device.version : 0;
    return 0;
}
SIM(int) nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

/* ---- devices -------------------------------------------------------------------------------------------- */

/* A handle is the device's number and one, so that none is null. */
static void *handle(unsigned number) { return (void *)(uintptr_t)(number + 1); }

static int look(const void *handle, struct physical *out) {
    uintptr_t number = (uintptr_t)handle - 1;
    if (initialised <= 0) return UNINITIALIZED;
    if (number >= count()) return INVALID_ARGUMENT;
    describe((unsigned)number, out);
    return 0;
}

static void uuid_text(const struct physical *device, char out[80]) {
    const unsigned char *u = device->uuid;
    snprintf(out, 80, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2],
             u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

SIM(int) nvmlDeviceGetCount_v2(unsigned *out) {
    if (initialised <= 0) return UNINITIALIZED;
    if (!out) return INVALID_ARGUMENT;
    *out = count();
    return 0;
}
SIM(int) nvmlDeviceGetCount(unsigned *out) { return nvmlDeviceGetCount_v2(out); }

SIM(int) nvmlDeviceGetHandleByIndex_v2(unsigned number, void **out) {
    if (initialised <= 0) return UNINITIALIZED;
    if (!out || number >= count()) return INVALID_ARGUMENT;
    *out = handle(number);
    return 0;
}
SIM(int) nvmlDeviceGetHandleByIndex(unsigned number, void **out) { return nvmlDeviceGetHandleByIndex_v2(number, out); }

/* "domain:bus:device.function" in hexadecimal, with or without the domain. */
SIM(int) nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **out) {
    unsigned domain = 0, bus, slot;
    struct physical device;
    if (initialised <= 0) return UNINITIALIZED;
    if (!id || !out) return INVALID_ARGUMENT;
    if (sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3) {
        domain = 0;
        if (sscanf(id, "%x:%x", &bus, &slot) != 2) return INVALID_ARGUMENT;
    }
    for (unsigned number = 0; domain == 0 && slot == 0 && number < count(); number++) {
        describe(number, &device);
        if (device.bus != bus) continue;
        *out = handle(number);
        return 0;
    }
    return NOT_FOUND;
}
SIM(int) nvmlDeviceGetHandleByPciBusId(const char *id, void **out) { return nvmlDeviceGetHandleByPciBusId_v2(id, out); }

SIM(int) nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
    char text[80];
    struct physical device;
    if (initialised <= 0) return UNINITIALIZED;
    if (!uuid || !out) return INVALID_ARGUMENT;
    for (unsigned number = 0; number < count(); number++) {
        describe(number, &device);
        uuid_text(&device, text);
        if (strcmp(text, uuid)) continue;
        *out = handle(number);
        return 0;
    }
    return NOT_FOUND;
}

SIM(int) nvmlDeviceGetIndex(void *at, unsigned *out) {
    struct physical device;
    int failed = look(at, &device);
    if (failed || !out) return failed ? failed : INVALID_ARGUMENT;
    *out = (unsigned)((uintptr_t)at - 1);
    return 0;
}
SIM(int) nvmlDeviceGetMinorNumber(void *at, unsigned *out) { return nvmlDeviceGetIndex(at, out); }

SIM(int) nvmlDeviceGetName(void *at, char *out, unsigned room) {
    struct physical device;
    int failed = look(at, &device);
    return failed ? failed : put(out, room, "Simulated GPU");
}

SIM(int) nvmlDeviceGetUUID(void *at, char *out, unsigned room) {
    struct physical device;
    char text[80];
    int failed = look(at, &device);
    if (failed) return failed;
    uuid_text(&device, text);
    return put(out, room, text);
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; };

SIM(int) nvmlDeviceGetPciInfo_v3(void *at, struct pci *out) {
    struct physical device;
    int failed = look(at, &device);
    if (failed || !out) return failed ? failed : INVALID_ARGUMENT;
    *out = (struct pci){ .bus = device.bus };
    snprintf(out->legacy, sizeof out->legacy, "0000:%02X:00.0", device.bus);
    snprintf(out->text, sizeof out->text, "00000000:%02X:00.0", device.bus);
    return 0;
}

SIM(int) nvmlDeviceGetCudaComputeCapability(void *at, int *major, int *minor) {
    struct physical device;
    int failed = look(at, &device);
    if (failed || !major || !minor) return failed ? failed : INVALID_ARGUMENT;
    *major = device.cc[0];
    *minor = device.cc[1];
    return 0;
}

static int number(void *at, unsigned *out, unsigned value) {
    struct physical device;
    int failed = look(at, &device);
    if (failed || !out) return failed ? failed : INVALID_ARGUMENT;
    *out = value;
    return 0;
}
SIM(int) nvmlDeviceGetCurrPcieLinkGeneration(void *at, unsigned *out) { return number(at, out, 4); }
SIM(int) nvmlDeviceGetMaxPcieLinkGeneration(void *at, unsigned *out) { return number(at, out, 4); }
SIM(int) nvmlDeviceGetCurrPcieLinkWidth(void *at, unsigned *out) { return number(at, out, 16); }
SIM(int) nvmlDeviceGetMaxPcieLinkWidth(void *at, unsigned *out) { return number(at, out, 16); }

struct memory { unsigned long long total, free, used; };

SIM(int) nvmlDeviceGetMemoryInfo(void *at, struct memory *out) {
    struct physical device;
    int failed = look(at, &device);
    if (failed || !out) return failed ? failed : INVALID_ARGUMENT;
    *out = (struct memory){ device.memory, device.memory - device.used, device.used };
    return 0;
}

/* ---- processes: this one alone, since each has devices of its own ----------------------------------------- */

struct process_v1 { unsigned pid; unsigned long long used; };
struct process { unsigned pid; unsigned long long used; unsigned instance, compute_instance; };

/* Says whether there is room for what there is to tell, and stores how many processes that is. */
static int processes(void *at, unsigned *room, void *out, struct physical *device) {
    int failed = look(at, device);
    if (failed || !room) return failed ? failed : INVALID_ARGUMENT;
    unsigned found = device->used > 0, had = *room;
    *room = found;
    return found > had || (found && !out) ? INSUFFICIENT_SIZE : 0;
}

SIM(int) nvmlDeviceGetComputeRunningProcesses(void *at, unsigned *count, struct process_v1 *out) {
    struct physical device;
    int failed = processes(at, count, out, &device);
    if (!failed && *count) *out = (struct process_v1){ (unsigned)getpid(), device.used };
    return failed;
}

SIM(int) nvmlDeviceGetComputeRunningProcesses_v3(void *at, unsigned *count, struct process *out) {
    struct physical device;
    int failed = processes(at, count, out, &device);
    if (!failed && *count) *out = (struct process){ (unsigned)getpid(), device.used, ~0u, ~0u };
    return failed;
}
SIM(int) nvmlDeviceGetComputeRunningProcesses_v2(void *at, unsigned *count, struct process *out) {
    return nvmlDeviceGetComputeRunningProcesses_v3(at, count, out);
}

/* ---- what is between devices ----------------------------------------------------------------------------- */

/* As the simulated driver says of its devices: each reaches the others' memory. */
SIM(int) nvmlDeviceGetP2PStatus(void *at, void *other, int which, int *out) {
    struct physical device;
    int failed = look(at, &device);
    failed = failed ? failed : look(other, &device);
    if (failed || !out) return failed ? failed : INVALID_ARGUMENT;
    *out = 0;
    return 0;
}

/* ---- what no simulated device has ------------------------------------------------------------------------ */

static int unsupported(void *at) {
    struct physical device;
    int failed = look(at, &device);
    return failed ? failed : NOT_SUPPORTED;
}

SIM(int) nvmlDeviceGetNvLinkState(void *at) { return unsupported(at); }
SIM(int) nvmlDeviceGetNvLinkRemoteDeviceType(void *at) { return unsupported(at); }
SIM(int) nvmlDeviceGetNvLinkRemotePciInfo_v2(void *at) { return unsupported(at); }
SIM(int) nvmlDeviceGetGpuFabricInfo(void *at) { return unsupported(at); }
SIM(int) nvmlDeviceGetGpuFabricInfoV(void *at) { return unsupported(at); }
SIM(int) nvmlDeviceGetMigMode(void *at) { return unsupported(at); }
SIM(int) nvmlDeviceGetVirtualizationMode(void *at) { return unsupported(at); }
SIM(int) nvmlDeviceGetNumaNodeId(void *at) { return unsupported(at); }
SIM(int) nvmlDeviceGetUtilizationRates(void *at) { return unsupported(at); }
SIM(int) nvmlDeviceGetTemperature(void *at) { return unsupported(at); }
SIM(int) nvmlDeviceGetPowerUsage(void *at) { return unsupported(at); }
SIM(int) nvmlDeviceGetClockInfo(void *at) { return unsupported(at); }
SIM(int) nvmlDeviceGetMaxClockInfo(void *at) { return unsupported(at); }
