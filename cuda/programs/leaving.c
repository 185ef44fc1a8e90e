/* Leaves calls of the runtime in the middle, or comes to them from a signal handler. What it allocates last, 1001 bytes, has to
   be seen in every case. Prints what is the same however it is run.
   usage: leaving HOW [TIMES] */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime_api.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern cudaError_t cudaMalloc(void **, size_t);
extern cudaError_t cudaFree(void *);
extern void (*cudaInside)(void);

static void *take(size_t bytes) { void *p = NULL; cudaMalloc(&p, bytes); return p; }
static void churn(long n) { for (long i = 0; i < n; i++) cudaFree(take(100 + i % 7)); }
static __attribute__((noinline)) void last(void) { take(1001); __asm__(""); }

/* Each bit of `way` makes the stack another one. */
static __attribute__((noinline)) void left(unsigned way, int depth);
static __attribute__((noinline)) void right(unsigned way, int depth);
static void down(unsigned way, int depth) {
    if (depth == 0) cudaFree(take(64));
    else if (way & 1) left(way >> 1, depth - 1);
    else right(way >> 1, depth - 1);
}
static void left(unsigned way, int depth) { down(way, depth); __asm__(""); }
static void right(unsigned way, int depth) { down(way, depth); __asm__(""); }

/* Threads that end inside of a call. A destructor of theirs allocates: 512 bytes that stay. */
static pthread_key_t key;
static void destructor(void *unused) { (void)unused; cudaInside = NULL; take(512); }
static void leaves(void) { cudaInside = NULL; pthread_exit(NULL); }
static void cancelled(void) { cudaInside = NULL; pthread_cancel(pthread_self()); pthread_testcancel(); }
static void *ends(void *how) {
    pthread_setspecific(key, &key);
    void *p;
    if (!strcmp(how, "cancelled at once")) { pthread_cancel(pthread_self()); take(100); pthread_testcancel(); }
    if (!strcmp(how, "cancelled in an allocation")) { cudaInside = cancelled; take(100); }
    if (!strcmp(how, "exits in an allocation")) { cudaInside = leaves; take(100); }
    if (!strcmp(how, "cancelled in a free")) { p = take(100); cudaInside = cancelled; cudaFree(p); }
    return (void *)1;
}

/* Threads that may be cancelled at any moment, most of which are spent in calls. */
static volatile long rounds;
static void *at_any_moment(void *unused) {
    (void)unused;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (unsigned i = 0;; i++) { down(i * 2654435761u, 12); rounds++; }
    return NULL;
}

static void (*step)(const char *), (*mark)(const char *), (*dump)(void);
static volatile sig_atomic_t ticks, times;
static sigjmp_buf back;
static void jumps(int signal) { (void)signal; ticks++; siglongjmp(back, 1); }
static void jumps_inside(void) { cudaInside = NULL; longjmp(back, 1); }
static void once(void);
static void forks(int signal) {
    int before = errno;
    (void)signal;
    if (ticks == times) return;
    ticks++;
    pid_t child = fork();
    /* Every other child goes on where its parent was, and ends soon. */
    if (child == 0 && ticks % 2) _exit(0);
    if (child == 0) { ticks = 1 << 20; return; }
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    if (status) { static const char what[] = "a child ended badly\n"; write(1, what, sizeof what - 1); }
    /* Not before: the program goes on between two of them, however long a fork takes. */
    once();
    errno = before;
}
static void speaks(int signal) {
    int before = errno;
    (void)signal;
    ticks++;
    if (mark) mark("in a handler");
    if (step) step(NULL);
    if (dump && ticks % 16 == 0) dump();
    errno = before;
}
static void *allocates(void *until) { for (unsigned i = 0; ticks < (long)until; i++) down(i * 2654435761u, 12); return NULL; }

static void often(void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | flags};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 300}, {0, 300}};
    setitimer(ITIMER_REAL, &timer, NULL);
}
static void once(void) {
    struct itimerval timer = {{0, 0}, {0, 300}};
    setitimer(ITIMER_REAL, &timer, NULL);
}
static void never(void) {
    struct itimerval timer = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &timer, NULL);
    signal(SIGALRM, SIG_IGN);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    times = argc > 2 ? atoi(argv[2]) : 0;
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    step = (void (*)(const char *))dlsym(RTLD_DEFAULT, "leaktrace_step");
    mark = (void (*)(const char *))dlsym(RTLD_DEFAULT, "leaktrace_mark");
    dump = (void (*)(void))dlsym(RTLD_DEFAULT, "leaktrace_dump");
    setvbuf(stdout, NULL, _IONBF, 0);
    if (!strncmp(how, "cancelled", 9) || !strncmp(how, "exits", 5)) {
        pthread_t thread;
        void *result;
        pthread_key_create(&key, destructor);
        /* The first call of all is the thread's where nothing was loaded before. */
        if (strcmp(how, "cancelled at once")) churn(1);
        pthread_create(&thread, NULL, ends, (void *)how);
        pthread_join(thread, &result);
        printf("%s\n", result == PTHREAD_CANCELED ? "cancelled" : result ? "returned" : "exited");
    }
    if (!strcmp(how, "cut off at any moment")) {
        churn(1);
        int gone = 0;
        for (int i = 0; i < times; i++) {
            pthread_t thread;
            void *result;
            long before = rounds;
            pthread_create(&thread, NULL, at_any_moment, NULL);
            while (rounds < before + i % 16) sched_yield();
            pthread_cancel(thread);
            pthread_join(thread, &result);
            gone += result == PTHREAD_CANCELED;
        }
        printf("%d cancelled\n", gone);
    }
    if (!strcmp(how, "jumps out of an allocation")) {
        churn(1);
        if (!setjmp(back)) { cudaInside = jumps_inside; take(100); }
    }
    if (!strcmp(how, "jumps out of a handler")) {
        churn(1);
        sigsetjmp(back, 1);
        if (ticks == 0) often(jumps, SA_NODEFER);
        while (ticks < times) churn(100);
    }
    if (!strcmp(how, "jumps out of new stacks")) {
        churn(1);
        volatile unsigned way = 0;
        sigsetjmp(back, 1);
        if (ticks == 0) often(jumps, SA_NODEFER);
        while (ticks < times) down(way++ * 2654435761u, 12);
    }
    if (!strcmp(how, "forks")) { churn(1); often(forks, 0); once(); while (ticks < times) churn(100); }
    if (!strcmp(how, "forks beside a thread")) {
        pthread_t thread;
        churn(1);
        pthread_sigmask(SIG_BLOCK, &alarms, NULL);
        pthread_create(&thread, NULL, allocates, (void *)(long)times);
        pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
        often(forks, 0);
        once();
        for (unsigned i = 0; ticks < times; i++) down(i * 2654435761u, 12);
        if (ticks < 1 << 20) pthread_join(thread, NULL);
    }
    if (!strcmp(how, "speaks")) {
        churn(1);
        often(speaks, 0);
        for (unsigned i = 0; ticks < times; i++) {
            down(i * 2654435761u, 12);
            if (mark) mark("outside");
            if (step && i % 4 == 0) step(NULL);
            if (dump && i % 256 == 0) dump();
        }
    }
    never();
    last();
    if (step && !strcmp(how, "speaks")) step(NULL);
    printf("done\n");
    return 0;
}
