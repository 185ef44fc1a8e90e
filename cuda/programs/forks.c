/* Allocates through the runtime, then forks; the child does what argv[1] says, the parent goes on and exits 0 if the
   child did well.
     nothing   returns from main          alloc    allocates and returns from main
     _exit     allocates, then _exit      exec     runs `true`
     again     forks once more; the grandchild allocates
     vfork     vfork and exec           _Fork     a fork without handlers; the child allocates
     race      many times over: the child's first allocations run in two threads while it forks a grandchild, which
               allocates too. Whatever the threads were in the middle of, the grandchild must not wait for it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime_api.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern cudaError_t cudaMalloc(void **, size_t);

static int joined(pid_t child) {
    int status;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 96;
}

static void *allocates(void *unused) {
    (void)unused;
    void *p;
    for (int i = 0; i < 3; i++) cudaMalloc(&p, 2002);
    return NULL;
}

static int race(void) {
    for (int i = 0; i < 24; i++) {
        pid_t child = fork();
        if (child == 0) {
            pthread_t threads[2];
            for (int t = 0; t < 2; t++) pthread_create(&threads[t], NULL, allocates, NULL);
            /* a little later each time: the first look-up, the first event, the recording's making */
            for (volatile int wait = 0; wait < i * 20000; wait++) {}
            pid_t grandchild = fork();
            if (grandchild == 0) { allocates(NULL); _exit(0); }
            int well = joined(grandchild);
            for (int t = 0; t < 2; t++) pthread_join(threads[t], NULL);
            _exit(well);
        }
        if (joined(child)) return 96;
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    void *p;
    if (!strcmp(how, "race")) return race();
    cudaMalloc(&p, 1001);
    pid_t child;
    if (!strcmp(how, "vfork")) {
        if (!(child = vfork())) { execlp("true", "true", (char *)NULL); _exit(97); }
    } else {
        child = !strcmp(how, "_Fork") ? _Fork() : fork();
    }
    if (child == 0) {
        if (!strcmp(how, "exec")) { execlp("true", "true", (char *)NULL); _exit(97); }
        if (!strcmp(how, "again")) {
            pid_t grandchild = fork();
            if (grandchild) return joined(grandchild);
        }
        if (strcmp(how, "nothing")) {
            cudaMalloc(&p, 2002);
            cudaMalloc(&p, 2004);
        }
        if (how[0] == '_') _exit(0);
        return 0;
    }
    cudaMalloc(&p, 4004);
    int well = joined(child);
    printf("child %d\n", (int)child);
    return well;
}
