/* Uses the primary contexts of two devices, then gives them up, and says what the driver counted (counting_driver.c). */
#include <dlfcn.h>
#include <stdio.h>
#include <stddef.h>

typedef unsigned long long P;

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) { fprintf(stderr, "%s\n", dlerror()); return 90; }
    int (*retain)(void **, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*release)(int) = dlsym(driver, "cuDevicePrimaryCtxRelease_v2");
    int (*reset)(int) = dlsym(driver, "cuDevicePrimaryCtxReset_v2");
    int (*set)(void *) = dlsym(driver, "cuCtxSetCurrent");
    int (*take)(P *, size_t) = dlsym(driver, "cuMemAlloc_v2");
    void (*counts)(int *) = dlsym(driver, "counts");
    void (*step)(const char *) = dlsym(RTLD_DEFAULT, "leaktrace_step");
    void *contexts[2];
    int seen[4];
    P p;
    for (int device = 1; device >= 0; device--) {
        if (retain(&contexts[device], device) || retain(&contexts[device], device)) return 91;
        if (set(contexts[device]) || take(&p, 1000 + device)) return 92;
    }
    /* the other device is asked what it has in use, too */
    if (step) step("both");
    if (release(1) || release(1) || release(0) || reset(0)) return 93;
    counts(seen);
    printf("taken %d given up %d made %d ended %d\n", seen[0], seen[1], seen[2], seen[3]);
    return 0;
}
