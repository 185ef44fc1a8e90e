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
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern cudaError_t cudaMalloc(void **, size_t);
extern cudaError_t cudaFree(void *);

static void *exits(void *unused) { (void)unused; exit(17); }
static void *leaves(void *unused) { (void)unused; _exit(20); }
static void *late(void *main_thread) {
    pthread_join(*(pthread_t *)main_thread, NULL);
    void *p;
    cudaMalloc(&p, 2002);
    return NULL;
}
static void at_exit(void) { void *p; cudaMalloc(&p, 3003); puts("at exit"); }
static void handler(int signal) { (void)signal; _exit(18); }
static void exiting(int signal) { (void)signal; exit(19); }

/* Allocates at ever new depths, so that every stack is a new one, until something ends it. */
static void *deeper(int depth) {
    void *p;
    if (depth > 0) {
        void *result = deeper(depth - 1);
        /* no tail call */
        return (char *)result + (depth & 0);
    }
    cudaMalloc(&p, 1000);
    cudaFree(p);
    return p;
}
static void *busy(void *unused) {
    (void)unused;
    for (int i = 0;; i++) deeper(i % 120);
    return NULL;
}
static void *idles(void *unused) {
    (void)unused;
    for (;;) { deeper(3); pthread_testcancel(); }
    return NULL;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    void *p, *gone;
    static pthread_t self, other;
    /* what stands in errno afterwards shows whether a hook changes it */
    errno = 42;
    cudaMalloc(&p, 1001);
    int first = errno;
    cudaMalloc(&gone, 5005);
    errno = 42;
    cudaMalloc(&p, 0);
    cudaFree(gone);
    if (first != 42 || errno != 42) printf("errno became %d, %d\n", first, errno);
    printf("ending by %s\n", how);
    fflush(stdout);
    if (!strcmp(how, "return")) return 11;
    printf("not flushed\n");
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
    if (!strcmp(how, "thread _exit")) { pthread_create(&other, NULL, leaves, NULL); pthread_join(other, NULL); }
    if (!strcmp(how, "hang")) for (;;) pause();
    if (!strcmp(how, "cancel")) {
        for (int i = 0; i < 50; i++) {
            void *result;
            pthread_create(&other, NULL, idles, NULL);
            pthread_cancel(other);
            pthread_join(other, &result);
            if (result != PTHREAD_CANCELED) return 96;
        }
        return 21;
    }
    if (!strcmp(how, "pthread_exit")) {
        self = pthread_self();
        pthread_create(&other, NULL, late, &self);
        pthread_exit(NULL);
    }
    /* exit() in a handler, wherever the program is at that moment: argv[2] microseconds from now */
    if (!strcmp(how, "exit in handler")) {
        struct itimerval soon = {{0, 0}, {0, atoi(argv[2])}};
        signal(SIGALRM, exiting);
        setitimer(ITIMER_REAL, &soon, NULL);
        busy(NULL);
    }
    if (!strcmp(how, "exec")) { execl("/bin/sh", "sh", "-c", "exit 16", (char *)NULL); return 94; }
    /* this program once more, in the same process: argv[2] times, then it returns */
    if (!strcmp(how, "exec itself")) {
        int left = atoi(argv[2]) - 1;
        char text[16], log[4096];
        snprintf(text, sizeof text, "%d", left);
        if (getenv("SIMGPU_LOG")) {
            snprintf(log, sizeof log, "%s+", getenv("SIMGPU_LOG"));
            setenv("SIMGPU_LOG", log, 1);
        }
        execl("/proc/self/exe", argv[0], left ? how : "return", text, (char *)NULL);
        return 94;
    }
    return 95;
}
