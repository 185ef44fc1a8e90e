/* Each library that is closed opens another one in its destructor, so that there are as many libraries after as before.
   usage: replaced RUNTIME OTHER…   once for each other library. With -DPLUGIN: that runtime. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime_api.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifdef PLUGIN
const char *other;
cudaError_t cudaMalloc(void **p, size_t bytes) { *p = (void *)(bytes << 20); return 0; }
cudaError_t cudaFree(void *p) { (void)p; return 0; }
__attribute__((destructor)) static void opens(void) {
    if (other && !dlopen(other, RTLD_NOW)) abort();
}
#else
int main(int argc, char **argv) {
    for (int i = 2; i < argc; i++) {
        void *p, *runtime = dlopen(argv[1], RTLD_NOW);
        if (!runtime) { fprintf(stderr, "%s\n", dlerror()); return 90; }
        cudaError_t (*take)(void **, size_t) = (cudaError_t (*)(void **, size_t))dlsym(runtime, "cudaMalloc");
        *(const char **)dlsym(runtime, "other") = argv[i];
        if (take(&p, 1000 + (size_t)i)) return 91;
        if (dlclose(runtime) || dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD)) return 92;
        /* what comes next comes to lie elsewhere */
        for (int page = 0; page < 400; page++) mmap(NULL, 4 << 10, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    printf("done\n");
    return 0;
}
#endif
