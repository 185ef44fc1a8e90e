/* The part of the documented driver API that the test programs call, and three ways to reach it:
   -DBY_LINK     call the exported symbols directly (link with libcuda.so.1)
   -DBY_DLSYM    dlopen("libcuda.so.1"), then dlsym of the exported symbol
   -DBY_PROC     dlopen, dlsym("cuGetProcAddress_v2") only, then everything through that, as the CUDA 12 runtime does
   A call is written  cu(MemAlloc)(&p, bytes)  in all three. */
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef int CUdevice;
typedef void *CUcontext;
typedef void *CUstream;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUhandle;
typedef struct { int type, id; } CUlocation;
typedef struct {
    int type, handle_types;
    CUlocation location;
    void *windows;
    struct { unsigned char compression, rdma; unsigned short usage; unsigned char reserved[4]; } flags;
} CUprop;
typedef struct { CUlocation location; int flags; } CUaccess;

/*  id                symbol                         name                        version  per-thread arguments */
#define DRIVER(X)                                                                                                  \
    X(Init,           cuInit,                        "cuInit",                     2000, 0, (unsigned))             \
    X(DeviceGet,      cuDeviceGet,                   "cuDeviceGet",                2000, 0, (CUdevice *, int))      \
    X(CtxCreate,      cuCtxCreate_v2,                "cuCtxCreate",                3020, 0, (CUcontext *, unsigned, CUdevice)) \
    X(CtxDestroy,     cuCtxDestroy_v2,               "cuCtxDestroy",               4000, 0, (CUcontext))            \
    X(CtxSetCurrent,  cuCtxSetCurrent,               "cuCtxSetCurrent",            4000, 0, (CUcontext))            \
    X(PrimaryRetain,  cuDevicePrimaryCtxRetain,      "cuDevicePrimaryCtxRetain",   7000, 0, (CUcontext *, CUdevice)) \
    X(PrimaryRelease, cuDevicePrimaryCtxRelease_v2,  "cuDevicePrimaryCtxRelease", 11000, 0, (CUdevice))             \
    X(PrimaryReset,   cuDevicePrimaryCtxReset_v2,    "cuDevicePrimaryCtxReset",   11000, 0, (CUdevice))             \
    X(MemAlloc,       cuMemAlloc_v2,                 "cuMemAlloc",                 3020, 0, (CUdeviceptr *, size_t)) \
    X(MemAllocPitch,  cuMemAllocPitch_v2,            "cuMemAllocPitch",            3020, 0, (CUdeviceptr *, size_t *, size_t, size_t, unsigned)) \
    X(MemManaged,     cuMemAllocManaged,             "cuMemAllocManaged",          6000, 0, (CUdeviceptr *, size_t, unsigned)) \
    X(MemFree,        cuMemFree_v2,                  "cuMemFree",                  3020, 0, (CUdeviceptr))          \
    X(HostAlloc,      cuMemHostAlloc,                "cuMemHostAlloc",             2020, 0, (void **, size_t, unsigned)) \
    X(AllocHost,      cuMemAllocHost_v2,             "cuMemAllocHost",             3020, 0, (void **, size_t))      \
    X(FreeHost,       cuMemFreeHost,                 "cuMemFreeHost",              2000, 0, (void *))               \
    X(AllocAsync,     cuMemAllocAsync,               "cuMemAllocAsync",           11020, 0, (CUdeviceptr *, size_t, CUstream)) \
    X(AllocAsyncT,    cuMemAllocAsync_ptsz,          "cuMemAllocAsync",           11020, 2, (CUdeviceptr *, size_t, CUstream)) \
    X(FreeAsync,      cuMemFreeAsync,                "cuMemFreeAsync",            11020, 0, (CUdeviceptr, CUstream)) \
    X(FreeAsyncT,     cuMemFreeAsync_ptsz,           "cuMemFreeAsync",            11020, 2, (CUdeviceptr, CUstream)) \
    X(Reserve,        cuMemAddressReserve,           "cuMemAddressReserve",       10020, 0, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)) \
    X(AddressFree,    cuMemAddressFree,              "cuMemAddressFree",          10020, 0, (CUdeviceptr, size_t))  \
    X(Create,         cuMemCreate,                   "cuMemCreate",               10020, 0, (CUhandle *, size_t, const CUprop *, unsigned long long)) \
    X(Release,        cuMemRelease,                  "cuMemRelease",              10020, 0, (CUhandle))             \
    X(Retain,         cuMemRetainAllocationHandle,   "cuMemRetainAllocationHandle", 11000, 0, (CUhandle *, void *)) \
    X(Map,            cuMemMap,                      "cuMemMap",                  10020, 0, (CUdeviceptr, size_t, size_t, CUhandle, unsigned long long)) \
    X(SetAccess,      cuMemSetAccess,                "cuMemSetAccess",            10020, 0, (CUdeviceptr, size_t, const CUaccess *, size_t)) \
    X(Unmap,          cuMemUnmap,                    "cuMemUnmap",                10020, 0, (CUdeviceptr, size_t))

/* What a program calls only where the driver has it: more rows, defined before this file is included. */
#ifndef DRIVER_OPTIONAL
#define DRIVER_OPTIONAL(X)
#endif

#ifdef BY_LINK
#define DECLARE(id, symbol, name, version, flags, args) \
    extern CUresult symbol args;                        \
    static inline __typeof__(&symbol) reach_##id(void) { return &symbol; }
DRIVER(DECLARE)
#define DECLARE_WEAK(id, symbol, name, version, flags, args)  \
    extern CUresult symbol args __attribute__((weak));        \
    static inline __typeof__(&symbol) reach_##id(void) { return &symbol; }
DRIVER_OPTIONAL(DECLARE_WEAK)
#define cu(id) reach_##id()
static void reach_driver(void) {}
#else
static struct {
#define MEMBER(id, symbol, name, version, flags, args) CUresult(*id) args;
    DRIVER(MEMBER) DRIVER_OPTIONAL(MEMBER)
} driver;
#define cu(id) driver.id

static void reach_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); exit(90); }
#ifdef BY_PROC
    CUresult (*find)(const char *, void **, int, unsigned long long, int *) = dlsym(library, "cuGetProcAddress_v2");
    if (!find) { fprintf(stderr, "no cuGetProcAddress_v2\n"); exit(90); }
#define FIND(id, symbol, name, version, flags, args)                                                          \
    {                                                                                                         \
        int status = -1;                                                                                      \
        void *found = NULL;                                                                                   \
        /* each name at the version whose signature is written above; for older ones no place for the status is \
           passed, which is allowed */                                                                        \
        if (find(name, &found, version, flags, version > 9000 ? &status : NULL)) found = NULL;                \
        driver.id = (CUresult(*) args)found;                                                                  \
    }
#else
#define FIND(id, symbol, name, version, flags, args) driver.id = (CUresult(*) args)dlsym(library, #symbol);
#endif
#define FIND_OR_STOP(id, symbol, name, version, flags, args) \
    FIND(id, symbol, name, version, flags, args)             \
    if (!driver.id) { fprintf(stderr, "%s not found\n", #symbol); exit(90); }
    DRIVER(FIND_OR_STOP)
    DRIVER_OPTIONAL(FIND)
}
#endif

/* Stops the program where a call fails that must not. */
#define MUST(call)                                                                  \
    do {                                                                            \
        CUresult status_ = (call);                                                  \
        if (status_) {                                                              \
            fprintf(stderr, "%s:%d: %s = %d\n", __FILE__, __LINE__, #call, status_); \
            exit(91);                                                               \
        }                                                                           \
    } while (0)

/* The library under test's own function, if it is in the process. */
static inline void step(const char *label) {
    void (*call)(const char *) = (void (*)(const char *))dlsym(RTLD_DEFAULT, "leaktrace_step");
    if (call) call(label);
}

/* xorshift: the same numbers everywhere */
static inline uint64_t chance(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}
