/* A preload that stands in for malloc and its family, as counting and hardened allocators do. Tells at the end, in the file
   COUNTS, how many places of the library in WATCHED call them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t), __libc_free(void *);

/* The places that have called, each once. */
#define PLACES 65536
static void *places[PLACES];

static void note(void *place) {
    for (uintptr_t at = (uintptr_t)place * 0x9E3779B97F4A7C15u >> 48;; at = (at + 1) % PLACES) {
        void *free = NULL;
        if (__atomic_compare_exchange_n(&places[at], &free, place, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED) || free == place)
            return;
    }
}

#define NOTED note(__builtin_return_address(0))
void *malloc(size_t size) { return NOTED, __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return NOTED, __libc_calloc(count, size); }
void *realloc(void *p, size_t size) { return NOTED, __libc_realloc(p, size); }
void *memalign(size_t align, size_t size) { return NOTED, __libc_memalign(align, size); }
void *aligned_alloc(size_t align, size_t size) { return NOTED, __libc_memalign(align, size); }
int posix_memalign(void **p, size_t align, size_t size) { return NOTED, (*p = __libc_memalign(align, size)) ? 0 : 12; }
void free(void *p) { NOTED, __libc_free(p); }

__attribute__((destructor)) static void tell(void) {
    FILE *file = getenv("COUNTS") ? fopen(getenv("COUNTS"), "w") : NULL;
    if (!file) return;
    int all = 0, watched = 0;
    for (int at = 0; at < PLACES; at++) {
        Dl_info info;
        if (!places[at] || !dladdr(places[at], &info) || !info.dli_fname) continue;
        all++;
        watched += strstr(info.dli_fname, getenv("WATCHED")) != NULL;
    }
    fprintf(file, "%d %d\n", all, watched);
    fclose(file);
}
