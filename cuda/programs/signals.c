/* A signal handler that allocates, wherever it interrupts the main thread, which allocates too: each reports blocks as
   PyTorch's caching allocator does (see blocks.c), at ever new stacks. The handler's blocks stay alive, on device 1; those of
   the main thread, on device 0, do not. Prints how many blocks the handler has reported.
   usage: signals BLOCKS EVERY
     BLOCKS  of the main thread
     EVERY   blocks of the main thread after which it ends a step; it ends one more at the end */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

struct device { signed char type, index; };
/* c10::reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, c10::Device) */
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *, long, unsigned long, unsigned long, struct device);

static volatile long reported;

static void report(int device, uint64_t address, long size) {
    struct device of = {1, (signed char)device};
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE((void *)address, size, 1 << 20, 1ul << 40, of);
}

/* Each bit of `way` makes the stack another one. */
static __attribute__((noinline)) void left(unsigned way, int depth, int device, uint64_t address);
static __attribute__((noinline)) void right(unsigned way, int depth, int device, uint64_t address);

static void down(unsigned way, int depth, int device, uint64_t address) {
    if (depth == 0) report(device, address, 512);
    else if (way & 1) left(way >> 1, depth - 1, device, address);
    else right(way >> 1, depth - 1, device, address);
}
static void left(unsigned way, int depth, int device, uint64_t address) { down(way, depth, device, address); __asm__(""); }
static void right(unsigned way, int depth, int device, uint64_t address) { down(way, depth, device, address); __asm__(""); }

static void handler(int signal) {
    (void)signal;
    int before = errno;
    long n = reported;
    down((unsigned)n, 10, 1, (2ull << 40) + n * 8192);
    reported = n + 1;
    errno = before;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    long blocks = atol(argv[1]), every = atol(argv[2]);
    int (*step)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "leaktrace_step");
    /* What the first event starts is not what is tested here. */
    down(0, 10, 0, 1ull << 40);
    report(0, 1ull << 40, -512);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    for (long i = 1; i <= blocks; i++) {
        uint64_t address = (1ull << 40) + i % 64 * 8192;
        down((unsigned)i * 2654435761u, 14, 0, address);
        report(0, address, -512);
        if (i % every == 0 && step) step(NULL);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    if (step) step(NULL);
    printf("%ld\n", reported);
    return 0;
}
