/* Threads that allocate all the time, from ever new call stacks, while the main thread forks argv[1] children; each child
   does the same in threads of its own, for a short while. A child that waits for what only the parent's threads could give
   back never ends. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime_api.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern cudaError_t cudaMalloc(void **, size_t);
extern cudaError_t cudaFree(void *);

static volatile int stop;

static int deeper(int depth, unsigned path) {
    if (depth > 0) return (path & 1 ? deeper(depth - 1, path >> 1) : deeper(depth - 1, path >> 1) + 1) + 1;
    void *p;
    cudaMalloc(&p, 1000);
    cudaFree(p);
    return 0;
}

static void *busy(void *rounds) {
    unsigned path = (unsigned)(size_t)&path;
    for (long i = 0; !stop && (!rounds || i < (long)rounds); i++) deeper(3 + i % 12, path = path * 1664525 + 1013904223);
    return NULL;
}

static void in_threads(pthread_t *threads, int count, void *rounds) {
    for (int i = 0; i < count; i++) if (pthread_create(&threads[i], NULL, busy, rounds)) abort();
}

int main(int argc, char **argv) {
    int children = argc > 1 ? atoi(argv[1]) : 1;
    pthread_t threads[4];
    in_threads(threads, 4, NULL);
    for (int i = 0; i < children; i++) {
        pid_t child = fork();
        if (child == 0) {
            in_threads(threads, 4, (void *)100);
            for (int t = 0; t < 4; t++) pthread_join(threads[t], NULL);
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status) { printf("child %d: %d\n", i, status); return 96; }
    }
    stop = 1;
    for (int t = 0; t < 4; t++) pthread_join(threads[t], NULL);
    printf("%d children did well\n", children);
    return 0;
}
