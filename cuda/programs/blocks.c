/* Blocks without a framework: calls the function by which PyTorch's caching allocator reports each block, as fast as it
   can. Compiled with -DSTANDIN it is the library where that function lives.
   usage: blocks EVENTS THREADS LIVE EVERY [DEPTH]
     EVENTS  of all threads together; each allocates and frees at random within LIVE places of its own
     EVERY   events of the first thread after which it ends a step, 0: never
     DEPTH   frames between the loop and the lines that allocate, each called from one of two places: 4 << DEPTH call
             stacks. With it, the processor's seconds of each tenth of the first thread's events go to standard error
   Each thread has a device of its own, since the allocator reports under a lock per device. Prints the blocks alive at
   the end, bytes alive, and the seconds it took, then waits for a line on its input. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct device { signed char type, index; };
/* c10::reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, c10::Device) */
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *, long, unsigned long, unsigned long, struct device);

#ifdef STANDIN
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(
    void *block, long size, unsigned long allocated, unsigned long reserved, struct device device) {
    (void)block, (void)size, (void)allocated, (void)reserved, (void)device;
}
#else

struct thread { int number; long events, blocks; unsigned long bytes; };
static long live, every, depth;
static int (*step)(const char *);
static pthread_barrier_t begin;

static __attribute__((noinline)) void report(uint64_t address, long size, struct thread *t) {
    t->bytes += size;
    t->blocks += size > 0 ? 1 : -1;
    struct device device = {1, (signed char)t->number};
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE((void *)address, size, t->bytes, 1ul << 40, device);
}

/* Four lines that allocate. */
static __attribute__((noinline)) void one(uint64_t a, long s, struct thread *t) { report(a, s, t); __asm__(""); }
static __attribute__((noinline)) void two(uint64_t a, long s, struct thread *t) { report(a, s, t); __asm__(""); }
static __attribute__((noinline)) void three(uint64_t a, long s, struct thread *t) { report(a, s, t); __asm__(""); }
static __attribute__((noinline)) void four(uint64_t a, long s, struct thread *t) { report(a, s, t); __asm__(""); }

static void (*const lines[])(uint64_t, long, struct thread *) = {one, two, three, four};

/* Calls one of the lines, by a way that the bits of `way` choose. */
static __attribute__((noinline)) void call(long deeper, uint64_t way, uint64_t address, long size, struct thread *t) {
    if (!deeper) lines[way & 3](address, size, t);
    else if (way & 1) call(deeper - 1, way >> 1, address, size, t);
    else { call(deeper - 1, way >> 1, address, size, t); __asm__("nop"); }
    __asm__("");
}

static double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void *run(void *argument) {
    struct thread *t = argument;
    uint64_t random = 88172645463325252ull + t->number, base = (uint64_t)(t->number + 1) << 40;
    unsigned char *sizes = calloc(live, 1);
    pthread_barrier_wait(&begin);
    double began = now(CLOCK_THREAD_CPUTIME_ID);
    for (long i = 1; i <= t->events; i++) {
        random ^= random << 13; random ^= random >> 7; random ^= random << 17;
        long place = (long)((random >> 8) % (unsigned long)live);
        if (sizes[place]) {
            report(base + place * 8192, -512l * sizes[place], t);
            sizes[place] = 0;
        } else {
            sizes[place] = 1 + (random >> 50) % 16;
            call(depth, random >> (62 - depth), base + place * 8192, 512l * sizes[place], t);
        }
        if (depth && t->number == 0 && i % (t->events / 10) == 0) {
            fprintf(stderr, "%.3f\n", now(CLOCK_THREAD_CPUTIME_ID) - began);
            began = now(CLOCK_THREAD_CPUTIME_ID);
        }
        if (every && t->number == 0 && i % every == 0 && step) step(NULL);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 5 && argc != 6) return 2;
    int threads = atoi(argv[2]);
    live = atol(argv[3]);
    every = atol(argv[4]);
    depth = argc == 6 ? atol(argv[5]) : 0;
    step = (int (*)(const char *))dlsym(RTLD_DEFAULT, "leaktrace_step");
    struct thread *all = calloc(threads, sizeof *all);
    pthread_t *handles = calloc(threads, sizeof *handles);
    pthread_barrier_init(&begin, NULL, threads);
    double from = now(CLOCK_MONOTONIC);
    for (int i = 0; i < threads; i++) {
        all[i].number = i;
        all[i].events = atol(argv[1]) / threads;
        if (i) pthread_create(&handles[i], NULL, run, &all[i]);
    }
    run(&all[0]);
    for (int i = 1; i < threads; i++) pthread_join(handles[i], NULL);
    double to = now(CLOCK_MONOTONIC);
    long blocks = 0;
    unsigned long bytes = 0;
    for (int i = 0; i < threads; i++) blocks += all[i].blocks, bytes += all[i].bytes;
    printf("%ld %lu %.3f\n", blocks, bytes, to - from);
    fflush(stdout);
    getchar();
    return 0;
}
#endif
