/* A runtime that says who it is in the topmost bits of the addresses it gives. Calls no driver, gives no memory. Where it
   begins is the time, so that it gives no address twice when it is loaded again. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime_api.h"
#include <stdint.h>
#include <time.h>


static uintptr_t given;
__attribute__((constructor)) static void begin(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    given = (uintptr_t)WHO << 56 | (now.tv_sec * 1000000000ull + now.tv_nsec);
}
cudaError_t cudaMalloc(void **p, size_t bytes) { *p = (void *)(given += 2 * bytes); return 0; }
cudaError_t cudaFree(void *p) { (void)p; return 0; }
cudaError_t cudaGetDevice(int *device) { *device = 0; return 0; }
