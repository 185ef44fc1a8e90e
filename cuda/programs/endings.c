/* Allocates through the runtime, then ends in the way argv[1] names. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime_api.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern cudaError_t cudaMalloc(void **, size_t);
extern cudaError_t cudaFree(void *);

static void *exits(void *unused) { (void)unused; exit(17); }
static void *late(void *main_thread) {
    pthread_join(*(pthread_t *)main_thread, NULL);
    void *p;
    cudaMalloc(&p, 2002);
    return NULL;
}
static void at_exit(void) { void *p; cudaMalloc(&p, 3003); puts("at exit"); }
static void handler(int signal) { (void)signal; _exit(18); }

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    void *p, *gone;
    static pthread_t self, other;
    /* a failing look at errno shows whether a hook changes it */
    errno = 42;
    cudaMalloc(&p, 1001);
    cudaMalloc(&gone, 5005);
    cudaFree(gone);
    if (errno != 42) { fprintf(stderr, "errno became %d\n", errno); return 93; }
    printf("ending by %s\n", how);
    fflush(stdout);
    if (!strcmp(how, "return")) return 11;
    if (!strcmp(how, "exit")) exit(12);
    if (!strcmp(how, "atexit")) { atexit(at_exit); exit(13); }
    if (!strcmp(how, "_exit")) _exit(14);
    if (!strcmp(how, "quick_exit")) quick_exit(15);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "terminated")) raise(SIGTERM);
    if (!strcmp(how, "killed")) raise(SIGKILL);
    if (!strcmp(how, "segfault")) *(volatile int *)8 = 1;
    if (!strcmp(how, "handled")) { signal(SIGTERM, handler); raise(SIGTERM); }
    if (!strcmp(how, "thread")) { pthread_create(&other, NULL, exits, NULL); pthread_join(other, NULL); }
    if (!strcmp(how, "pthread_exit")) {
        self = pthread_self();
        pthread_create(&other, NULL, late, &self);
        pthread_exit(NULL);
    }
    if (!strcmp(how, "exec")) { execl("/bin/sh", "sh", "-c", "exit 16", (char *)NULL); return 94; }
    return 95;
}
