/* A preload that wraps allocators, as memory limiters and loggers do: asks for the next one by name, counts, calls it. Tells
   the counts at the end in the file COUNTS. -DEARLY: asks in its constructor, else at the first call. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define EACH(X)                                                      \
    X(cuMemAlloc_v2, (unsigned long long *p, size_t n), (p, n))      \
    X(cuMemFree_v2, (unsigned long long p), (p))                     \
    X(cudaMalloc, (void **p, size_t n), (p, n))                      \
    X(cudaFree, (void *p), (p))

#define WRAP(name, parameters, arguments)                                    \
    static int calls_##name, (*next_##name) parameters;                      \
    int name parameters {                                                    \
        __atomic_add_fetch(&calls_##name, 1, __ATOMIC_RELAXED);              \
        if (!next_##name) next_##name = (int (*) parameters)dlsym(RTLD_NEXT, #name); \
        return next_##name ? next_##name arguments : 999;                    \
    }
EACH(WRAP)

#ifdef EARLY
__attribute__((constructor)) static void find(void) {
#define FIND(name, parameters, arguments) next_##name = (int (*) parameters)dlsym(RTLD_NEXT, #name);
    EACH(FIND)
}
#endif

__attribute__((destructor)) static void tell(void) {
    FILE *file = getenv("COUNTS") ? fopen(getenv("COUNTS"), "a") : NULL;
    if (!file) return;
#define TELL(name, parameters, arguments) fprintf(file, #name " %d\n", calls_##name);
    EACH(TELL)
    fclose(file);
}
