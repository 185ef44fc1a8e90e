/* The rest of the documented driver API that `families.c` calls. A driver may lack any of it: `has(id)` says. */
#pragma once
#include <stddef.h>

typedef void *CUpool, *CUarray, *CUmipmap, *CUexternal, *CUgraph, *CUnode, *CUexec, *CUgreen, *CUdesc;
typedef struct { int kind, id; } CUplace;
typedef struct { size_t width, height; int format; unsigned channels; } CUshape2;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } CUshape3;
typedef struct {
    int type, handle_types;
    CUplace place;
    void *windows;
    size_t most;
    unsigned short usage;
    unsigned char reserved[54];
} CUpoolprops;
typedef struct { unsigned devices; size_t bytes; unsigned long long handle_types, flags; } CUteam;
typedef struct { char bytes[64]; } CUshare; /* of CUipcMemHandle and CUmemPoolPtrExportData */
typedef struct {
    int type;
    union { int fd; void *pair[2]; } handle;
    unsigned long long bytes;
    unsigned flags, reserved[16];
} CUimport;
typedef struct { unsigned long long offset, bytes; unsigned flags, reserved[16]; } CUbuffer;
typedef struct { unsigned long long offset; CUshape3 shape; unsigned levels, reserved[16]; } CUlevels;
typedef struct {
    CUpoolprops pool;
    const void *access;
    size_t access_count, bytes;
    unsigned long long address;
} CUallocnode;
typedef struct { int type; unsigned char padding[92]; unsigned processors; unsigned char rest[44]; } CUresource;

_Static_assert(sizeof(CUpoolprops) == 88 && sizeof(CUimport) == 104 && sizeof(CUbuffer) == 88, "documented layouts");
_Static_assert(sizeof(CUlevels) == 120 && sizeof(CUallocnode) == 120 && sizeof(CUresource) == 144, "as above");

#define P unsigned long long /* an address */
#define DRIVER_OPTIONAL(X)                                                                                             \
    X(CtxPush,       cuCtxPushCurrent_v2,           "cuCtxPushCurrent",             4000, 0, (void *))                 \
    X(CtxPop,        cuCtxPopCurrent_v2,            "cuCtxPopCurrent",              4000, 0, (void **))                \
    X(MemInfo,       cuMemGetInfo_v2,               "cuMemGetInfo",                 3020, 0, (size_t *, size_t *))     \
    X(Register,      cuMemHostRegister_v2,          "cuMemHostRegister",            6050, 0, (void *, size_t, unsigned)) \
    X(Unregister,    cuMemHostUnregister,           "cuMemHostUnregister",          4000, 0, (void *))                 \
    X(AllocPool,     cuMemAllocFromPoolAsync,       "cuMemAllocFromPoolAsync",     11020, 0, (P *, size_t, CUpool, void *)) \
    X(AllocPoolT,    cuMemAllocFromPoolAsync_ptsz,  "cuMemAllocFromPoolAsync",     11020, 2, (P *, size_t, CUpool, void *)) \
    X(PoolCreate,    cuMemPoolCreate,               "cuMemPoolCreate",             11020, 0, (CUpool *, const CUpoolprops *)) \
    X(PoolDestroy,   cuMemPoolDestroy,              "cuMemPoolDestroy",            11020, 0, (CUpool))                 \
    X(PoolTrim,      cuMemPoolTrimTo,               "cuMemPoolTrimTo",             11020, 0, (CUpool, size_t))         \
    X(PoolSet,       cuMemPoolSetAttribute,         "cuMemPoolSetAttribute",       11020, 0, (CUpool, int, void *))    \
    X(PoolGet,       cuMemPoolGetAttribute,         "cuMemPoolGetAttribute",       11020, 0, (CUpool, int, void *))    \
    X(PoolDefault,   cuDeviceGetDefaultMemPool,     "cuDeviceGetDefaultMemPool",   11020, 0, (CUpool *, int))          \
    X(PoolExport,    cuMemPoolExportToShareableHandle, "cuMemPoolExportToShareableHandle", 11020, 0, (void *, CUpool, int, P)) \
    X(PoolImport,    cuMemPoolImportFromShareableHandle, "cuMemPoolImportFromShareableHandle", 11020, 0, (CUpool *, void *, int, P)) \
    X(PoolExportAt,  cuMemPoolExportPointer,        "cuMemPoolExportPointer",      11020, 0, (CUshare *, P))           \
    X(PoolImportAt,  cuMemPoolImportPointer,        "cuMemPoolImportPointer",      11020, 0, (P *, CUpool, CUshare *)) \
    X(Export,        cuMemExportToShareableHandle,  "cuMemExportToShareableHandle", 10020, 0, (void *, P, int, P))     \
    X(Import,        cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", 10020, 0, (P *, void *, int))   \
    X(TeamCreate,    cuMulticastCreate,             "cuMulticastCreate",           12010, 0, (P *, const CUteam *))    \
    X(TeamAdd,       cuMulticastAddDevice,          "cuMulticastAddDevice",        12010, 0, (P, int))                 \
    X(TeamBind,      cuMulticastBindMem,            "cuMulticastBindMem",          12010, 0, (P, size_t, P, size_t, size_t, P)) \
    X(TeamBindAt,    cuMulticastBindAddr,           "cuMulticastBindAddr",         12010, 0, (P, size_t, P, size_t, P)) \
    X(TeamUnbind,    cuMulticastUnbind,             "cuMulticastUnbind",           12010, 0, (P, int, size_t, size_t)) \
    X(ArrayCreate,   cuArrayCreate_v2,              "cuArrayCreate",                3020, 0, (CUarray *, const CUshape2 *)) \
    X(Array3D,       cuArray3DCreate_v2,            "cuArray3DCreate",              3020, 0, (CUarray *, const CUshape3 *)) \
    X(ArrayDestroy,  cuArrayDestroy,                "cuArrayDestroy",               2000, 0, (CUarray))                \
    X(MipCreate,     cuMipmappedArrayCreate,        "cuMipmappedArrayCreate",       5000, 0, (CUmipmap *, const CUshape3 *, unsigned)) \
    X(MipDestroy,    cuMipmappedArrayDestroy,       "cuMipmappedArrayDestroy",      5000, 0, (CUmipmap))               \
    X(IpcGet,        cuIpcGetMemHandle,             "cuIpcGetMemHandle",            4010, 0, (CUshare *, P))           \
    X(IpcOpen,       cuIpcOpenMemHandle_v2,         "cuIpcOpenMemHandle",          11000, 0, (P *, CUshare, unsigned)) \
    X(IpcClose,      cuIpcCloseMemHandle,           "cuIpcCloseMemHandle",          4010, 0, (P))                      \
    X(ExtImport,     cuImportExternalMemory,        "cuImportExternalMemory",      10000, 0, (CUexternal *, const CUimport *)) \
    X(ExtBuffer,     cuExternalMemoryGetMappedBuffer, "cuExternalMemoryGetMappedBuffer", 10000, 0, (P *, CUexternal, const CUbuffer *)) \
    X(ExtLevels,     cuExternalMemoryGetMappedMipmappedArray, "cuExternalMemoryGetMappedMipmappedArray", 10000, 0, (CUmipmap *, CUexternal, const CUlevels *)) \
    X(ExtDestroy,    cuDestroyExternalMemory,       "cuDestroyExternalMemory",     10000, 0, (CUexternal))             \
    X(StreamCreate,  cuStreamCreate,                "cuStreamCreate",               2000, 0, (void **, unsigned))      \
    X(StreamSync,    cuStreamSynchronize,           "cuStreamSynchronize",          2000, 0, (void *))                 \
    X(CaptureBegin,  cuStreamBeginCapture_v2,       "cuStreamBeginCapture",        10010, 0, (void *, int))            \
    X(CaptureEnd,    cuStreamEndCapture,            "cuStreamEndCapture",          10000, 0, (void *, CUgraph *))      \
    X(GraphCreate,   cuGraphCreate,                 "cuGraphCreate",               10000, 0, (CUgraph *, unsigned))    \
    X(GraphDestroy,  cuGraphDestroy,                "cuGraphDestroy",              10000, 0, (CUgraph))                \
    X(NodeAlloc,     cuGraphAddMemAllocNode,        "cuGraphAddMemAllocNode",      11040, 0, (CUnode *, CUgraph, const CUnode *, size_t, CUallocnode *)) \
    X(NodeFree,      cuGraphAddMemFreeNode,         "cuGraphAddMemFreeNode",       11040, 0, (CUnode *, CUgraph, const CUnode *, size_t, P)) \
    X(Instantiate,   cuGraphInstantiateWithFlags,   "cuGraphInstantiateWithFlags", 11040, 0, (CUexec *, CUgraph, P))   \
    X(GraphLaunch,   cuGraphLaunch,                 "cuGraphLaunch",               10000, 0, (CUexec, void *))         \
    X(GraphLaunchT,  cuGraphLaunch_ptsz,            "cuGraphLaunch",               10000, 2, (CUexec, void *))         \
    X(ExecDestroy,   cuGraphExecDestroy,            "cuGraphExecDestroy",          10000, 0, (CUexec))                 \
    X(GraphTrim,     cuDeviceGraphMemTrim,          "cuDeviceGraphMemTrim",        11040, 0, (int))                    \
    X(GraphMemory,   cuDeviceGetGraphMemAttribute,  "cuDeviceGetGraphMemAttribute", 11040, 0, (int, int, void *))      \
    X(GreenCreate,   cuGreenCtxCreate,              "cuGreenCtxCreate",            12040, 0, (CUgreen *, CUdesc, int, unsigned)) \
    X(GreenDestroy,  cuGreenCtxDestroy,             "cuGreenCtxDestroy",           12040, 0, (CUgreen))                \
    X(GreenContext,  cuCtxFromGreenCtx,             "cuCtxFromGreenCtx",           12040, 0, (void **, CUgreen))       \
    X(Resource,      cuDeviceGetDevResource,        "cuDeviceGetDevResource",      12040, 0, (int, CUresource *, int)) \
    X(Describe,      cuDevResourceGenerateDesc,     "cuDevResourceGenerateDesc",   12040, 0, (CUdesc *, CUresource *, unsigned))

#include "driver_api.h"
#undef P
#define has(id) (cu(id) != NULL)
