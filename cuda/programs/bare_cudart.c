/* A stand-in for the CUDA runtime that calls no driver at all: memory is malloc's. What a program allocates through it
   can only be seen at the runtime's own symbols. */
#include "runtime_api.h"
#include <stdlib.h>

static cudaError_t give(void **p, size_t bytes) { return (*p = malloc(bytes ? bytes : 1)) ? 0 : 2; }
cudaError_t cudaMalloc(void **p, size_t bytes) { return give(p, bytes); }
cudaError_t cudaMallocManaged(void **p, size_t bytes, unsigned flags) { (void)flags; return give(p, bytes); }
cudaError_t cudaMallocPitch(void **p, size_t *pitch, size_t width, size_t height) {
    *pitch = (width + 511) / 512 * 512;
    return give(p, *pitch * height);
}
cudaError_t cudaMalloc3D(struct cudaPitchedPtr *p, struct cudaExtent e) {
    p->pitch = (e.width + 511) / 512 * 512;
    p->xsize = e.width;
    p->ysize = e.height;
    return give(&p->ptr, p->pitch * e.height * e.depth);
}
cudaError_t cudaMallocAsync(void **p, size_t bytes, cudaStream_t s) { (void)s; return give(p, bytes); }
cudaError_t cudaMallocHost(void **p, size_t bytes) { return give(p, bytes); }
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags) { (void)flags; return give(p, bytes); }
cudaError_t cudaFree(void *p) { free(p); return 0; }
cudaError_t cudaFreeAsync(void *p, cudaStream_t s) { (void)s; free(p); return 0; }
cudaError_t cudaFreeHost(void *p) { free(p); return 0; }
cudaError_t cudaGetDevice(int *device) { *device = 0; return 0; }
