/* A program made at random: some actions, then some way to end. What it prints and how it ends follow from the seed alone.
   usage: torture SEED PLUGIN [DEPTH]
   The runtime is leaving_cudart.c, which may be called from a signal handler. SIGUSR1 may come at any moment. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime_api.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern cudaError_t cudaMalloc(void **, size_t);
extern cudaError_t cudaFree(void *);
extern void (*cudaInside)(void);

static unsigned long seed;
static unsigned below(unsigned bound) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (unsigned)(seed >> 20) % bound;
}
static void say(const char *format, ...) {
    char line[200];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (int at = 0; at < length;) {
        ssize_t written = write(1, line + at, (size_t)(length - at));
        if (written > 0) at += (int)written;
        else if (errno != EINTR) _exit(90);
    }
}

static void *take(size_t bytes) { void *p = NULL; cudaMalloc(&p, bytes); return p; }
static void churn(unsigned n) { for (unsigned i = 0; i < n; i++) cudaFree(take(100 + i % 7)); }
static __attribute__((noinline)) void left(unsigned way, int depth);
static __attribute__((noinline)) void right(unsigned way, int depth);
static void down(unsigned way, int depth) {
    if (depth == 0) cudaFree(take(64));
    else if (way & 1) left(way >> 1, depth - 1);
    else right(way >> 1, depth - 1);
}
static void left(unsigned way, int depth) { down(way, depth); __asm__(""); }
static void right(unsigned way, int depth) { down(way, depth); __asm__(""); }
static void stacks(unsigned n) { for (unsigned i = 0; i < n; i++) down(i * 2654435761u, 12); }

static void *brief(void *n) { take(10); churn((unsigned)(long)n); return n; }
static volatile unsigned long rounds;
static void *endless(void *at_any_moment) {
    pthread_setcanceltype(at_any_moment ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED, NULL);
    for (unsigned i = 0;; i++) { down(i * 2654435761u, 8); rounds++; pthread_testcancel(); }
    return NULL;
}
static void leaves(void) { cudaInside = NULL; pthread_exit(NULL); }
static void *exits(void *unused) { cudaInside = leaves; take(100); return unused; }

static sigjmp_buf back;
static volatile sig_atomic_t ticks;
static void jumps(int signal) { (void)signal; siglongjmp(back, 1); }
static void allocates(int signal) { int before = errno; (void)signal; ticks++; cudaFree(take(8)); errno = before; }
static void forks(int signal) {
    int before = errno, status;
    (void)signal;
    ticks++;
    pid_t child = fork();
    if (child == 0) _exit(0);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    errno = before;
}
static void counts(int signal) { (void)signal; ticks++; }
static void alarms(void (*handler)(int), long microseconds) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    ticks = 0;
    if (handler) sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    if (!handler) signal(SIGALRM, SIG_IGN);
}

static void joined(pthread_t thread) {
    void *result;
    pthread_join(thread, &result);
    say("thread %s\n", result == PTHREAD_CANCELED ? "cancelled" : result ? "returned" : "exited");
}
static void ended(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    say("child %x\n", status);
}

static const char *plugin;
static char **own_argv;
static void actions(unsigned count, int depth);
static void end(int depth);

static void action(int depth) {
    static void (*step)(const char *), (*mark)(const char *), (*dump)(void);
    unsigned which = below(17), n = below(400) + 1;
    pthread_t thread, more[8];
    pid_t child, children[8];
    say("%d: action %u of %u\n", depth, which, n);
    switch (which) {
    case 0: churn(n * 50); break;
    case 1: stacks(n * 4); break;
    case 2: for (unsigned i = 0; i < n; i++) take(512); break;
    case 3:
        for (int i = 0; i < 8; i++) pthread_create(&more[i], NULL, brief, (void *)(long)n);
        for (int i = 0; i < 8; i++) joined(more[i]);
        break;
    case 4:
        if (depth >= 2) break;
        child = fork();
        if (child == 0) { actions(below(4), depth + 1); end(depth + 1); }
        ended(child);
        break;
    case 5:
        child = vfork();
        if (child == 0) { execl("/bin/true", "true", NULL); _exit(91); }
        ended(child);
        break;
    case 6:
        for (unsigned i = 0; i < n % 8; i++) {
            void *handle = dlopen(plugin, RTLD_NOW);
            if (!handle) { say("not opened\n"); break; }
            cudaFree(((void *(*)(size_t))dlsym(handle, "plugin"))(30));
            dlclose(handle);
        }
        break;
    case 7:
        step = (void (*)(const char *))dlsym(RTLD_DEFAULT, "leaktrace_step");
        mark = (void (*)(const char *))dlsym(RTLD_DEFAULT, "leaktrace_mark");
        dump = (void (*)(void))dlsym(RTLD_DEFAULT, "leaktrace_dump");
        for (unsigned i = 0; i < n; i++) { churn(3); if (step) step(i % 3 ? NULL : "a step"); if (mark && i % 8 == 0) mark("here"); }
        if (dump) dump();
        break;
    case 8:
        if (!sigsetjmp(back, 1)) { alarms(jumps, 2000); for (;;) stacks(100); }
        alarms(NULL, 0);
        break;
    case 9: case 10:
        rounds = 0;
        pthread_create(&thread, NULL, endless, which == 10 ? own_argv : NULL);
        while (rounds < n) sched_yield();
        pthread_cancel(thread);
        joined(thread);
        break;
    case 11: pthread_create(&thread, NULL, exits, NULL); joined(thread); break;
    case 12: alarms(allocates, 500); while (ticks < 5) stacks(50); alarms(NULL, 0); break;
    case 13: alarms(forks, 3000); while (ticks < 3) churn(50); alarms(NULL, 0); break;
    case 14: {
        char name[40], text[8] = "";
        snprintf(name, sizeof name, "own.%d.%u", depth, n);
        int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
        if (write(file, "mine\n", 5) != 5 || pread(file, text, 5, 0) != 5) say("not written: %s\n", strerror(errno));
        close(file);
        unlink(name);
        say("wrote %s", text);
        break;
    }
    case 15:
        for (int i = 0; i < 8; i++) {
            children[i] = fork();
            if (children[i] == 0) { take(7); churn(n); _exit(i); }
        }
        for (int i = 0; i < 8; i++) ended(children[i]);
        break;
    case 16: {
        struct timespec pause = {0, (long)n * 20000};
        while (nanosleep(&pause, &pause) && errno == EINTR) {}
        break;
    }
    }
}

static void actions(unsigned count, int depth) { for (unsigned i = 0; i < count; i++) action(depth); }

static void end(int depth) {
    unsigned how = below(10), status = below(100);
    take(1001);
    say("%d: ends by %u\n", depth, how);
    switch (how) {
    case 0: _exit((int)status);
    case 1: quick_exit((int)status);
    case 2: abort();
    case 3: signal(SIGTERM, SIG_DFL); raise(SIGTERM); break;
    case 4: raise(SIGSEGV); break;
    case 5:
        if (depth < 2) {
            char number[24], level[16];
            snprintf(number, sizeof number, "%lu", seed | 1);
            snprintf(level, sizeof level, "%d", depth + 1);
            /* Until there is a handler again. */
            sigset_t user;
            sigemptyset(&user);
            sigaddset(&user, SIGUSR1);
            sigprocmask(SIG_BLOCK, &user, NULL);
            execl("/proc/self/exe", own_argv[0], number, plugin, level, NULL);
        }
        break;
    }
    exit((int)status);
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_handler = counts, .sa_flags = SA_RESTART};
    struct rlimit none = {0, 0};
    sigset_t user;
    sigemptyset(&user);
    sigaddset(&user, SIGUSR1);
    sigaction(SIGUSR1, &action, NULL);
    sigprocmask(SIG_UNBLOCK, &user, NULL);
    setrlimit(RLIMIT_CORE, &none);
    own_argv = argv;
    seed = (argc > 1 ? strtoul(argv[1], NULL, 10) : 1) * 0x9e3779b97f4a7c15ul | 1;
    plugin = argc > 2 ? argv[2] : "";
    for (int i = 0; i < 8; i++) below(2);
    actions(2 + below(8), argc > 3 ? atoi(argv[3]) : 0);
    end(argc > 3 ? atoi(argv[3]) : 0);
}
