/* A driver from the future, as far as a look-up can tell: next to the cuMemAlloc of today it has one with another signature,
   which new programs are given. Built as libcuda.so.1. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long P;

int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuMemAlloc_v2(P *p, size_t n) { *p = (uintptr_t)malloc(n); return 0; }
int cuMemAlloc_v3(P *p, size_t n, int kind) { *p = (uintptr_t)malloc(n + (size_t)kind); return 0; }
int cuMemFree_v2(P p) { free((void *)(uintptr_t)p); return 0; }

int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status) {
    (void)flags;
    *found = NULL;
    if (!strcmp(name, "cuInit")) *found = (void *)cuInit;
    if (!strcmp(name, "cuMemAlloc")) *found = version >= 15000 ? (void *)cuMemAlloc_v3 : (void *)cuMemAlloc_v2;
    if (!strcmp(name, "cuMemFree")) *found = (void *)cuMemFree_v2;
    if (status) *status = *found ? 0 : 1;
    return *found ? 0 : 500;
}
