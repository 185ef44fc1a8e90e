/* A program to which something is done from outside while it runs. It prints "ready" when it has allocated, and then
   allocates so many times for each line with a number on its standard input, and says "done".
     plain        on the main thread
     steps        the same, and each line ends a step
     threads      on four threads at once
     blocked      on a thread that has every signal blocked
     handler      it has a handler of its own for SIGBUS, and needs it at the end: for a fault and for a signal
     late         the same, set after the first allocation
     fault        at the end it makes a fault of its own, and has no handler
     signal       at the end it sends itself SIGBUS
     ignored      it ignores SIGBUS, and sends itself one at the end
     exec fails   at the end it calls exec in vain, and goes on */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime_api.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern cudaError_t cudaMalloc(void **, size_t);
extern cudaError_t cudaFree(void *);

static void *allocate(size_t bytes) {
    void *p;
    if (cudaMalloc(&p, bytes)) { fprintf(stderr, "no memory\n"); exit(91); }
    return p;
}

static void *churn(void *pairs) {
    for (long i = 0; i < (long)pairs; i++) cudaFree(allocate(1000 + i % 7));
    return NULL;
}

static sigjmp_buf back;
static volatile sig_atomic_t codes[2], seen;
static void *volatile addresses[2];

static void own_handler(int signal, siginfo_t *info, void *context) {
    (void)signal; (void)context;
    if (seen < 2) { codes[seen] = info->si_code; addresses[seen] = info->si_addr; }
    seen++;
    if (info->si_code > 0) siglongjmp(back, 1);
}

/* A file of its own, mapped and cut off. */
static char *gone(void) {
    int fd = open("own", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, 8192)) exit(92);
    char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED || ftruncate(fd, 0) || unlink("own")) exit(93);
    close(fd);
    return at;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    void (*step)(const char *) = (void (*)(const char *))dlsym(RTLD_DEFAULT, "leaktrace_step");
    struct sigaction own = {.sa_sigaction = own_handler, .sa_flags = SA_SIGINFO};
    int handles = !strcmp(how, "handler") || !strcmp(how, "late");
    if (!strcmp(how, "handler")) sigaction(SIGBUS, &own, NULL);
    if (!strcmp(how, "ignored")) signal(SIGBUS, SIG_IGN);
    if (!strcmp(how, "blocked")) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, NULL);
    }
    allocate(1001);
    if (!strcmp(how, "late")) sigaction(SIGBUS, &own, NULL);
    puts("ready");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        long pairs = atol(line);
        if (!strcmp(how, "threads")) {
            pthread_t threads[4];
            for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, churn, (void *)pairs);
            for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        } else churn((void *)pairs);
        if (!strcmp(how, "steps") && step) step(NULL);
        puts("done");
        fflush(stdout);
    }
    if (handles) {
        char *volatile lost = gone();
        if (!sigsetjmp(back, 1)) lost[5] = 1;
        raise(SIGBUS);
        printf("%d faults: code %d at %s, code %s\n", (int)seen, (int)codes[0], addresses[0] == lost + 5 ? "its own" : "another",
               codes[1] == SI_TKILL ? "tkill" : "other");
    }
    if (!strcmp(how, "fault")) gone()[5] = 1;
    if (!strcmp(how, "signal")) raise(SIGBUS);
    if (!strcmp(how, "ignored")) { raise(SIGBUS); puts("still here"); }
    if (!strcmp(how, "exec fails")) {
        int failed = execl("/nowhere/at/all", "all", "a", "b", "c", "d", "e", "f", "g", (char *)NULL);
        printf("%d %s\n", failed, strerror(errno));
        churn((void *)1);
        allocate(3);
        fflush(stdout);
        raise(SIGKILL);
    }
    puts("the end");
    return 7;
}
