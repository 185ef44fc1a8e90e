/* The part of the documented runtime API that the test programs call. */
#pragma once
#include <stddef.h>

typedef int cudaError_t;
typedef void *cudaStream_t;
struct cudaPitchedPtr { void *ptr; size_t pitch, xsize, ysize; };
struct cudaExtent { size_t width, height, depth; };

#define RUNTIME(X)                                                       \
    X(cudaMalloc, (void **, size_t))                                     \
    X(cudaFree, (void *))                                                \
    X(cudaMallocManaged, (void **, size_t, unsigned))                    \
    X(cudaMallocPitch, (void **, size_t *, size_t, size_t))              \
    X(cudaMalloc3D, (struct cudaPitchedPtr *, struct cudaExtent))        \
    X(cudaMallocAsync, (void **, size_t, cudaStream_t))                  \
    X(cudaFreeAsync, (void *, cudaStream_t))                             \
    X(cudaMallocHost, (void **, size_t))                                 \
    X(cudaHostAlloc, (void **, size_t, unsigned))                        \
    X(cudaFreeHost, (void *))                                            \
    X(cudaGetDevice, (int *))
