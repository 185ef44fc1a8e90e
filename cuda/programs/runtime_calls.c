/* Every allocator of the runtime: three allocations each, of sizes that occur once in the program; the second is freed.
   Prints what it did: "+ NAME BYTES" and "- NAME BYTES". Reached by
   -DBY_LINK    linking, in the program itself
   -DBY_DLOPEN  dlopen(RTLD_LOCAL) of argv[1], then dlsym
   -DPLUGIN     linking, in a library that `plugin_host` loads RTLD_LOCAL, as Python does */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime_api.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef BY_DLOPEN
static struct {
#define MEMBER(name, args) cudaError_t(*name) args;
    RUNTIME(MEMBER)
} runtime;
#define rt(name) runtime.name
#else
#define DECLARE(name, args) extern cudaError_t name args;
RUNTIME(DECLARE)
#define rt(name) name
#endif

#define MUST(call)                                                            \
    do {                                                                      \
        cudaError_t status_ = (call);                                         \
        if (status_) { fprintf(stderr, "%s = %d\n", #call, status_); exit(91); } \
    } while (0)

static size_t odd = 1001;
static size_t next(void) { return odd += 2; }

/* One allocator: `give` allocates `bytes` into `p`, `take` frees it. */
#define TRY(name, give, ender, take)                      \
    for (int i = 0; i < 3; i++) {                         \
        void *p = NULL;                                   \
        size_t bytes = next();                            \
        MUST(give);                                       \
        printf("+ %s %zu\n", name, bytes);                \
        if (i == 1) {                                     \
            MUST(take);                                   \
            printf("- %s %zu\n", ender, bytes);           \
        }                                                 \
    }

static void calls(void) {
    size_t pitch = 0;
    struct cudaPitchedPtr volume;
    TRY("cudaMalloc", rt(cudaMalloc)(&p, bytes), "cudaFree", rt(cudaFree)(p))
    TRY("cudaMallocManaged", rt(cudaMallocManaged)(&p, bytes, 1), "cudaFree", rt(cudaFree)(p))
    TRY("cudaMallocAsync", rt(cudaMallocAsync)(&p, bytes, NULL), "cudaFreeAsync", rt(cudaFreeAsync)(p, NULL))
    TRY("cudaMallocHost", rt(cudaMallocHost)(&p, bytes), "cudaFreeHost", rt(cudaFreeHost)(p))
    TRY("cudaHostAlloc", rt(cudaHostAlloc)(&p, bytes, 0), "cudaFreeHost", rt(cudaFreeHost)(p))
    for (int i = 0; i < 2; i++) {
        void *p = NULL;
        MUST(rt(cudaMallocPitch)(&p, &pitch, 700, 11 + i));
        printf("+ cudaMallocPitch %zu\n", pitch * (11 + i));
        MUST(rt(cudaMalloc3D)(&volume, (struct cudaExtent){700, 3, 17 + i}));
        printf("+ cudaMalloc3D %zu\n", volume.pitch * 3 * (17 + i));
    }
    /* freeing nothing is allowed and nothing */
    MUST(rt(cudaFree)(NULL));
}

#ifdef PLUGIN
void plugin(void) { calls(); }
#else
int main(int argc, char **argv) {
    (void)argc, (void)argv;
#ifdef BY_DLOPEN
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); return 90; }
#define FIND(name, args) \
    if (!(runtime.name = (cudaError_t(*) args)dlsym(library, #name))) { fprintf(stderr, "no %s\n", #name); return 90; }
    RUNTIME(FIND)
#endif
    calls();
    return 0;
}
#endif
