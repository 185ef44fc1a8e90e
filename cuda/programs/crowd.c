/* Very many of one thing, all there at the end. Prints the same however it is run.
     stacks COUNT [keep]   allocates from so many different call stacks; keeps the blocks, or frees each
     blocks COUNT          so many allocations that stay
     threads COUNT         so many threads at one time, each of which allocates, and once more when all are there
     modules COUNT PLUGIN  so many objects, copies of PLUGIN, that are loaded, allocate, and are unloaded */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime_api.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

extern cudaError_t cudaMalloc(void **, size_t);
extern cudaError_t cudaFree(void *);

static void *take(size_t bytes) { void *p = NULL; cudaMalloc(&p, bytes); return p; }

/* Each bit of `way` makes the stack another one. */
static void *left(unsigned way, int depth);
static void *right(unsigned way, int depth);
static void *down(unsigned way, int depth) {
    if (depth == 0) return take(64);
    return way & 1 ? left(way >> 1, depth - 1) : right(way >> 1, depth - 1);
}
static __attribute__((noinline)) void *left(unsigned way, int depth) { void *p = down(way, depth); __asm__(""); return p; }
static __attribute__((noinline)) void *right(unsigned way, int depth) { void *p = down(way, depth); __asm__(""); return p; }

static pthread_barrier_t all;
static void *brief(void *unused) {
    (void)unused;
    cudaFree(take(100));
    pthread_barrier_wait(&all);
    take(10);
    pthread_barrier_wait(&all);
    return NULL;
}

static int threads(long count) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    pthread_barrier_init(&all, NULL, (unsigned)count);
    pthread_t *made = calloc((size_t)count, sizeof *made);
    for (long i = 0; i < count; i++) if (pthread_create(&made[i], &attributes, brief, NULL)) return 77;
    for (long i = 0; i < count; i++) pthread_join(made[i], NULL);
    return 0;
}

static int modules(long count, const char *plugin) {
    int from = open(plugin, O_RDONLY);
    struct stat about;
    if (fstat(from, &about)) return 92;
    for (long i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "./plugin%ld.so", i);
        int to = creat(name, 0755);
        off_t at = 0;
        if (sendfile(to, from, &at, (size_t)about.st_size) != about.st_size) return 93;
        close(to);
        void *handle = dlopen(name, RTLD_NOW);
        if (!handle) { puts(dlerror()); return 94; }
        void *(*allocate)(size_t) = (void *(*)(size_t))dlsym(handle, "plugin");
        cudaFree(allocate(30));
        dlclose(handle);
        unlink(name);
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    long count = argc > 2 ? atol(argv[2]) : 0;
    int status = 0;
    if (!strcmp(what, "stacks")) for (long i = 0; i < count; i++) { void *p = down((unsigned)i, 20); if (argc < 4) cudaFree(p); }
    if (!strcmp(what, "blocks")) for (long i = 0; i < count; i++) take(512);
    if (!strcmp(what, "threads")) status = threads(count);
    if (!strcmp(what, "modules")) status = modules(count, argv[3]);
    take(1001);
    printf("%s are done\n", what);
    return status;
}
