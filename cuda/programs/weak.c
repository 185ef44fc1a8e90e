/* Bound weakly to the runtime and the driver, as libraries are that can do without: there is neither. With the preload
   the symbols exist, and answer that there is no CUDA. Exits 0 either way, 1 if a call claimed success. */
#include <stddef.h>

extern int cudaMalloc(void **, size_t) __attribute__((weak));
extern int cudaFree(void *) __attribute__((weak));
extern int cuMemAlloc_v2(unsigned long long *, size_t) __attribute__((weak));

int main(void) {
    void *p = NULL;
    unsigned long long d = 0;
    if (cudaMalloc && cudaMalloc(&p, 100) == 0) return 1;
    if (cudaFree && cudaFree(p) == 0) return 1;
    if (cuMemAlloc_v2 && cuMemAlloc_v2(&d, 100) == 0) return 1;
    return 0;
}
