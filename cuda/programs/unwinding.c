/* Allocates from stacks of every kind that unwinding has to understand. Prints nothing but what went wrong.

     unwinding keep               once, and keeps it
     unwinding stray              once, and keeps it, from below a return address where nothing is
     unwinding threads N          N allocations in each of four threads, from random call chains
     unwinding signals            from signal handlers, on the thread's stack and on one of its own
     unwinding stepping           from a handler after every single instruction of a call
     unwinding fibers N           from coroutines, whose stacks come and go
     unwinding small              from threads with the smallest stack, and from their destructors
     unwinding plugins N A B      from libraries that follow one another at the same addresses, N times
     unwinding children           from forked children

   -DPLUGIN=SIZE makes the library instead; SIZE changes how its frames look. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime_api.h"
#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern cudaError_t cudaMalloc(void **, size_t);
extern cudaError_t cudaFree(void *);

#define FAR __attribute__((noinline, noclone))

static FAR void allocate(size_t bytes) {
    void *p;
    if (cudaMalloc(&p, bytes) || cudaFree(p)) exit(91);
    __asm__ volatile("");
}

#ifdef PLUGIN

static FAR int inner(int n, volatile char *outside) {
    volatile char room[PLUGIN];
    room[0] = outside[0];
    allocate(100 + (size_t)n);
    return room[0] + n;
}
int plugin(int n) {
    volatile char room[PLUGIN + 64];
    room[0] = 1;
    if (n > 3) return plugin(n - 1) + room[0];
    return inner(n, room) + room[0];
}
/* Found out when it is first called, in the middle of the loader's work. */
static int answer(void) { return 42; }
static int (*find_answer(void))(void) {
    allocate(77);
    return answer;
}
int late(void) __attribute__((ifunc("find_answer")));
int call_late(void) { return late(); }
__attribute__((constructor)) static void opened(void) { allocate(88); }
__attribute__((destructor)) static void closed(void) { allocate(99); }

#else

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

/* The next step of a random walk; each thread has its own. */
static __thread unsigned long dice = 88172645463325252ul;
static unsigned roll(unsigned bound) {
    dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
    return (unsigned)(dice % bound);
}

static __thread jmp_buf *way_out;
static int onward(int depth, long a, long b);

#define EMPTY(x) __asm__ volatile("" : : "r"(x) : "memory")

/* Frames of fixed sizes, with few and many registers to save. */
#define FIXED(n, bytes)                                                   \
    static FAR int fixed_##n(int depth, long a, long b) {                 \
        volatile char room[bytes];                                        \
        room[0] = (char)a;                                                \
        long c = a * n + b, d = a ^ b, e = c - d;                         \
        int r = onward(depth, c, d);                                      \
        if (roll(8) == 0) r += onward(depth > 2 ? 2 : depth, d, e);       \
        return r + (int)(c + d + e) + room[0];                            \
    }
FIXED(1, 1) FIXED(2, 40) FIXED(3, 300) FIXED(4, 5000)

static FAR int variable(int depth, long a, long b) {
    char *room = alloca(16 + roll(200));
    room[0] = (char)b;
    EMPTY(room);
    return onward(depth, b, a + 1) + room[0];
}
/* Aligns its stack: its frame address is kept on the stack. */
static FAR int aligned(int depth, long a, long b) {
    char room[64] __attribute__((aligned(64)));
    char *more = alloca(8 + roll(64));
    room[0] = more[0] = (char)a;
    EMPTY(room);
    EMPTY(more);
    return onward(depth, a - b, b) + room[0] + more[0];
}
__attribute__((force_align_arg_pointer)) static FAR int realigned(int depth, long a, long b) {
    char room[32] __attribute__((aligned(32)));
    memset(room, (int)a, sizeof room);
    EMPTY(room);
    return onward(depth, a, b * 3) + room[3];
}
/* Calls the same from two places with stacks that differ by less than an alignment: what is called has the same frame each
   time, and the first return address still lies on the stack the second time. */
static FAR int settled(long a) {
    char room[64] __attribute__((aligned(64)));
    char *more = alloca(32);
    room[0] = more[0] = (char)a;
    EMPTY(room);
    EMPTY(more);
    allocate(60);
    return room[0] + more[0];
}
static FAR int shifts(int depth, long a, long b) {
    char *one = alloca(16);
    EMPTY(one);
    int r = settled(a);
    char *two = alloca(16);
    EMPTY(two);
    r -= settled(a);
    return r + onward(depth, a, b);
}
static FAR int many(int depth, long a, long b, long c, long d, long e, long f, long g, long h) {
    return onward(depth, a + c + e + g, b + d + f + h) + (int)(a ^ h);
}
static FAR int pushes(int depth, long a, long b) {
    return many(depth, a, b, a, b, a, b, a, b) + many(1, b, a, b, a, b, a, b, a);
}
static __thread struct { int depth, done; } sorting;
static int compare(const void *x, const void *y) {
    if (!sorting.done++) onward(sorting.depth, *(const int *)x, *(const int *)y);
    return *(const int *)x - *(const int *)y;
}
static FAR int sorts(int depth, long a, long b) {
    int list[] = {3, (int)a, 1, (int)b};
    sorting.depth = depth, sorting.done = 0;
    qsort(list, 4, sizeof *list, compare);
    return list[0];
}
static FAR int jumps(int depth, long a, long b) {
    jmp_buf here, *before = way_out;
    volatile int result = 1;
    way_out = &here;
    if (!setjmp(here)) result = onward(depth, a, b);
    way_out = before;
    allocate(50);
    return result;
}

typedef int kind(int, long, long);
static kind *const kinds[] = {fixed_1, fixed_2, fixed_3, fixed_4, variable, aligned, realigned, pushes, sorts, jumps, shifts};

static FAR int onward(int depth, long a, long b) {
    if (depth > 0) return kinds[roll(sizeof kinds / sizeof *kinds)](depth - 1, a, b) + 1;
    for (unsigned i = roll(3); i < 3; i++) allocate(100 + i);
    if (way_out && roll(4) == 0) longjmp(*way_out, 1);
    return (int)(a + b);
}

static long wanted;

static void *chains(void *seed) {
    dice += (unsigned long)seed * 7919;
    for (long n = 0; n < wanted; n++) onward((int)roll(n % 50 ? 25 : 400), n, 3);
    return NULL;
}

static void threads(void) {
    pthread_t thread[4];
    for (long i = 0; i < 4; i++) pthread_create(&thread[i], NULL, chains, (void *)(i + 1));
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
}

static void handler(int signal) {
    allocate(200 + (size_t)signal);
    onward(3, signal, 1);
}
static sigjmp_buf after_fault;
static void fault(int signal) {
    allocate(300 + (size_t)signal);
    siglongjmp(after_fault, 1);
}
static FAR int faults(volatile int *nowhere) {
    char room[100];
    EMPTY(room);
    return *nowhere + room[1];
}

static void signals(void) {
    for (int own_stack = 0; own_stack < 2; own_stack++) {
        stack_t stack = {.ss_sp = malloc(1 << 20), .ss_size = 1 << 20};
        struct sigaction action = {.sa_handler = handler, .sa_flags = own_stack ? SA_ONSTACK : 0};
        struct sigaction faulty = {.sa_handler = fault, .sa_flags = own_stack ? SA_ONSTACK : 0};
        sigaltstack(&stack, NULL);
        sigaction(SIGUSR1, &action, NULL);
        sigaction(SIGSEGV, &faulty, NULL);
        for (int i = 0; i < 300; i++) {
            allocate(1);
            raise(SIGUSR1);
            if (!sigsetjmp(after_fault, 1)) faults(NULL);
            onward(6, i, 2);
        }
    }
}

static int trapped;
static void trap(int signal) {
    (void)signal;
    trapped++;
    allocate(400);
}
static FAR long leaf(long a) { return a * a; }
static FAR long saves(long a, long b, long c, long d, long e, long f) {
    long x = leaf(a) + leaf(b), y = leaf(c) - leaf(d), z = leaf(e) ^ leaf(f);
    return leaf(x + y) + leaf(y + z) + leaf(z) + x + y + z;
}
static FAR long aligns(long a) {
    char room[64] __attribute__((aligned(64)));
    room[0] = (char)a;
    EMPTY(room);
    return saves(a, room[0], 2, 3, 4, 5) + room[0];
}
static FAR long by_pointer(long a) {
    char *room = alloca((size_t)a + 16);
    room[0] = 1;
    EMPTY(room);
    return aligns(a) + room[0];
}
static void stepping(void) {
    struct sigaction action = {.sa_handler = trap};
    sigaction(SIGTRAP, &action, NULL);
    for (int i = 0; i < 20; i++) {
        __asm__ volatile("pushfq\n orq $0x100, (%%rsp)\n popfq" ::: "memory", "cc");
        long x = by_pointer(i);
        __asm__ volatile("pushfq\n andq $~0x100, (%%rsp)\n popfq" ::: "memory", "cc");
        EMPTY(x);
    }
    if (trapped < 1000) exit(92);
}

/* A return address where nothing is, as beyond the part of the stack that is a coroutine's own. */
static jmp_buf after_stray;
static void astray(void) {
    void *kept;
    cudaMalloc(&kept, 4321);
    longjmp(after_stray, 1);
}
static void stray(void) {
    char *nowhere = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (setjmp(after_stray)) return;
    __asm__ volatile("andq $-16, %%rsp\n pushq %0\n jmp *%1" ::"r"(nowhere + 100), "r"(astray) : "memory");
}

static ucontext_t home, fiber;
static void in_fiber(int n) {
    for (int i = 0; i < 3; i++) {
        onward(n % 12, n, i);
        swapcontext(&fiber, &home);
    }
    allocate(10);
}
static void fibers(void) {
    for (int n = 0; n < wanted; n++) {
        size_t size = (size_t)(256 + n % 7 * 64) << 10;
        char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        getcontext(&fiber);
        fiber.uc_stack.ss_sp = stack;
        fiber.uc_stack.ss_size = size;
        fiber.uc_link = &home;
        makecontext(&fiber, (void (*)(void))in_fiber, 1, n);
        for (int i = 0; i < 4; i++) {
            onward(5, i, n);
            swapcontext(&home, &fiber);
        }
        munmap(stack, size);
    }
}

static void last_words(void *unused) {
    (void)unused;
    allocate(20);
}
static void *in_small(void *key) {
    pthread_setspecific(*(pthread_key_t *)key, key);
    for (int i = 0; i < 100; i++) many(0, i, 2, 3, 4, 5, 6, 7, 8);
    return NULL;
}
static void small(void) {
    pthread_attr_t attributes;
    pthread_key_t key;
    pthread_key_create(&key, last_words);
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN)) exit(93);
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, in_small, &key)) exit(94);
        pthread_join(thread, NULL);
    }
}

static void plugins(char **names) {
    uintptr_t places[2] = {0};
    for (long n = 0; n < wanted; n++) {
        void *library = dlopen(names[n % 2], RTLD_LAZY);
        if (!library) { fprintf(stderr, "%s\n", dlerror()); exit(95); }
        int (*plugin)(int) = dlsym(library, "plugin");
        int (*late)(void) = dlsym(library, "call_late");
        places[n % 2] = (uintptr_t)plugin >> 12;
        for (int i = 0; i < 20; i++) plugin(i % 9);
        if (late() != 42) exit(96);
        for (int i = 0; i < 5; i++) onward(8, i, n);
        dlclose(library);
    }
    if (places[0] != places[1]) fprintf(stderr, "the libraries did not lie at the same place\n");
}

static void children(void) {
    for (int i = 0; i < 5; i++) {
        onward(10, i, 1);
        pid_t child = fork();
        if (!child) {
            for (int n = 0; n < 200; n++) onward(12, n, 4);
            exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status) exit(97);
    }
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "threads";
    wanted = argc > 2 ? atol(argv[2]) : 100;
    allocate(5);
    void *kept;
    if (!strcmp(mode, "keep")) cudaMalloc(&kept, 1234);
    else if (!strcmp(mode, "stray")) stray();
    else if (!strcmp(mode, "threads")) threads();
    else if (!strcmp(mode, "signals")) signals();
    else if (!strcmp(mode, "stepping")) stepping();
    else if (!strcmp(mode, "fibers")) fibers();
    else if (!strcmp(mode, "small")) small();
    else if (!strcmp(mode, "plugins")) plugins(argv + 3);
    else if (!strcmp(mode, "children")) children();
    else return 90;
    return 0;
}
#endif
