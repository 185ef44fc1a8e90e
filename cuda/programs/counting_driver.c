/* A driver with two devices that counts the references to their primary contexts: how often one was taken, how often one
   was given up, how often a context was made or ended by that. Built as libcuda.so.1. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long P;

static int references[2], taken, given_up, made, ended;
static char contexts[2];
static __thread void *current, *pushed[4];
static __thread int depth;

void counts(int *into) {
    int all[4] = {taken, given_up, made, ended};
    memcpy(into, all, sizeof all);
}

int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
    taken++;
    if (references[device]++ == 0) made++;
    *context = &contexts[device];
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    if (references[device] == 0) return 201;
    given_up++;
    if (--references[device] == 0) ended++;
    return 0;
}
int cuDevicePrimaryCtxReset_v2(int device) {
    if (references[device]) ended++;
    references[device] = 0;
    return 0;
}
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    *flags = 0;
    *active = references[device] > 0;
    return 0;
}
int cuCtxSetCurrent(void *context) { current = context; return 0; }
int cuCtxGetCurrent(void **context) { *context = current; return 0; }
int cuCtxPushCurrent_v2(void *context) {
    if (!references[(char *)context - contexts]) return 201;
    pushed[depth++] = current;
    current = context;
    return 0;
}
int cuCtxPopCurrent_v2(void **context) { *context = current; current = pushed[--depth]; return 0; }
int cuCtxGetDevice(int *device) {
    if (!current) return 201;
    *device = (int)((char *)current - contexts);
    return 0;
}
int cuDeviceGetName(char *name, int size, int device) { strncpy(name, device ? "two" : "one", size); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)(device + 1) << 30; return 0; }
int cuMemGetInfo_v2(size_t *unused, size_t *total) {
    int device;
    if (cuCtxGetDevice(&device)) return 201;
    *total = (size_t)(device + 1) << 30;
    *unused = *total - (1 << 20);
    return 0;
}
int cuMemAlloc_v2(P *p, size_t n) {
    if (!current) return 201;
    *p = (uintptr_t)malloc(n);
    return 0;
}
int cuMemFree_v2(P p) { free((void *)(uintptr_t)p); return 0; }
