/* Counts this program's calls of malloc and its kin, by thread. Threads that live at the same time each allocate from the same
   place, for the first time; each says how many calls that took. The place itself is known: a first thread has been there. */
#define _GNU_SOURCE
#include "runtime_api.h"
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

extern cudaError_t cudaMalloc(void **, size_t);
extern cudaError_t cudaFree(void *);

#define THREADS 40

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);

static __thread unsigned calls;

void *malloc(size_t n) { return calls++, __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return calls++, __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return calls++, __libc_realloc(p, n); }
void *memalign(size_t to, size_t n) { return calls++, __libc_memalign(to, n); }
void *aligned_alloc(size_t to, size_t n) { return calls++, __libc_memalign(to, n); }
int posix_memalign(void **p, size_t to, size_t n) { return calls++, (*p = __libc_memalign(to, n)) ? 0 : 12; }

static pthread_barrier_t together;
static unsigned of_thread[THREADS];
static void *given[THREADS];

static void *work(void *which) {
    size_t i = (size_t)which;
    /* An event without a stack: the thread has its place in the recording. */
    cudaFree(given[i]);
    unsigned before = calls;
    cudaMalloc(&given[i], 256);
    of_thread[i] = calls - before;
    if (i) pthread_barrier_wait(&together);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&together, NULL, THREADS - 1);
    for (size_t i = 0; i < THREADS; i++) cudaMalloc(&given[i], 512);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, work, (void *)i);
        if (!i) pthread_join(threads[i], NULL);
    }
    for (size_t i = 1; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        printf("%u ", of_thread[i]);
    }
    puts("calls of malloc");
    return 0;
}
