/* With -DPLUGIN=name: a library whose function name_allocates() allocates. Else: loads the libraries argv[2…] one after
   the other, has each allocate a block of its own size, and unloads it before the next: they come to lie at one place.
   argv[1] times each block. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime_api.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

extern cudaError_t cudaMalloc(void **, size_t);

#ifdef PLUGIN
#define NAMED(name, rest) name##rest
#define ALLOCATES(name) NAMED(name, _allocates)
__attribute__((noinline)) int ALLOCATES(PLUGIN)(size_t bytes) {
    void *p;
    int status = cudaMalloc(&p, bytes);
    __asm__ volatile("" : : "r"(p) : "memory");
    return status;
}
#else
int main(int argc, char **argv) {
    void *before = NULL;
    int together = 0;
    for (int i = 2; i + 1 < argc; i += 2) {
        void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        if (!library) { fprintf(stderr, "%s\n", dlerror()); return 90; }
        int (*allocates)(size_t) = (int (*)(size_t))dlsym(library, argv[i + 1]);
        if (!allocates) return 91;
        for (int n = 0; n < atoi(argv[1]); n++) if (allocates((size_t)i * 1000)) return 92;
        together += (void *)allocates == before;
        before = (void *)allocates;
        if (dlclose(library)) return 93;
    }
    printf("%d at the place of the one before\n", together);
    return 0;
}
#endif
