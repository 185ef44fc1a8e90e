/* Allocates where that is hard for whoever records it. What it prints is the same whether it is recorded or not.
     churn PAIRS             so many allocations and frees; one block stays
     threads COUNT STACK [PAIRS]   COUNT short threads, eight at a time, with stacks of STACK bytes (0: the usual)
     descriptors FILE        writes to FILE which number the next descriptor gets, and which of 0, 1, 2 are open
     no descriptors          every descriptor is taken when the first block is allocated
     filled                  another file fills the disk for a while
     closes COUNT            closes every descriptor it did not open itself, opens COUNT of its own (as many as it can),
                             and allocates until any recording has to grow; then looks whether its own are as it left them */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sys/syscall.h>
#include <sys/prctl.h>
#include <stddef.h>
#include <linux/seccomp.h>
#include <linux/filter.h>
#include "runtime_api.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern cudaError_t cudaMalloc(void **, size_t);
extern cudaError_t cudaFree(void *);

static void *allocate(size_t bytes) {
    void *p;
    if (cudaMalloc(&p, bytes)) { fprintf(stderr, "no memory\n"); exit(91); }
    return p;
}

static void churn(long pairs) {
    for (long i = 0; i < pairs; i++) cudaFree(allocate(1000 + i % 7));
}

static long brief_pairs = 3;

static void *brief(void *unused) {
    (void)unused;
    allocate(10);
    churn(brief_pairs);
    return NULL;
}

static int threads(int count, size_t stack) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
#ifdef __aarch64__
    if (stack && stack < 131072) stack = 131072; /* the least that is allowed */
#endif
    if (stack && pthread_attr_setstacksize(&attributes, stack)) return 92;
    for (int done = 0; done < count; done += 8) {
        pthread_t batch[8];
        for (int i = 0; i < 8; i++) if (pthread_create(&batch[i], &attributes, brief, NULL)) return 93;
        for (int i = 0; i < 8; i++) pthread_join(batch[i], NULL);
    }
    return 0;
}

static int descriptors(const char *file) {
    allocate(1001);
    int next = open("/dev/null", O_RDONLY), open_ones = 0;
    for (int fd = 0; fd < 3; fd++) if (fd != next && fcntl(fd, F_GETFD) >= 0) open_ones |= 1 << fd;
    close(next);
    int out = creat(file, 0644);
    dprintf(out, "next %d, open %d\n", next, open_ones);
    close(out);
    return 0;
}

static int no_descriptors(void) {
    int count = 0;
    while (open("/dev/null", O_RDONLY) >= 0) count++;
    churn(10);
    allocate(1001);
    printf("%d descriptors, then %s\n", count, strerror(errno));
    return 0;
}

static int closes(int wanted) {
    allocate(1001);
    for (int fd = 3; fd < 1024; fd++) close(fd);
    int count = 0, own[1024];
    while (count < wanted && (own[count] = open("own", O_RDWR | O_CREAT, 0644)) >= 0) count++;
    if (write(own[0], "mine\n", 5) != 5) return 94;
    churn(100000);
    struct stat now;
    fstat(own[0], &now);
    int still_open = 0;
    for (int i = 0; i < count; i++) still_open += fcntl(own[i], F_GETFD) >= 0;
    /* a child lets go of what it inherits, and of nothing else */
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < count; i++) if (fcntl(own[i], F_GETFD) < 0) _exit(1);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    printf("own: %ld bytes, %d of %d open, in the child %s\n", (long)now.st_size, still_open, count, status ? "fewer" : "all");
    return 0;
}

static int filled(void) {
    allocate(1);
    int filler = creat("filler", 0644);
    static char zeros[65536];
    while (write(filler, zeros, sizeof zeros) > 0) {}
    churn(100000);
    unlink("filler");
    close(filler);
    churn(50000);
    allocate(1001);
    return 0;
}

/* Allows itself what it needs from here on, and is killed for anything else. */
static int sandboxed(const char *way) {
    static const int ALLOWED[] = {SYS_read, SYS_write, SYS_exit, SYS_exit_group, SYS_brk, SYS_mmap, SYS_munmap, SYS_fstat,
                                  SYS_newfstatat, SYS_ioctl};
    struct sock_filter filter[64];
    unsigned count = 0;
#define ADD(...) filter[count++] = (struct sock_filter)__VA_ARGS__
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    for (size_t i = 0; i < sizeof ALLOWED / sizeof *ALLOWED; i++) {
        ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)ALLOWED[i], 0, 1));
        ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    }
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    struct sock_fprog program = {(unsigned short)count, filter};
    if (strcmp(way, "early")) allocate(1001);
    printf("shut in by %s\n", way);
    fflush(stdout);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    long refused = 0;
    /* A question that installs nothing. */
    if (!strcmp(way, "question")) refused = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) != -1;
    if (!strcmp(way, "prctl") || !strcmp(way, "early")) refused = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    if (!strcmp(way, "seccomp")) refused = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
    if (!strcmp(way, "strict")) refused = prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0);
    if (refused) return 77;
    churn(100);
    allocate(2002);
    static const char done[] = "done\n";
    write(1, done, sizeof done - 1);
    if (!strcmp(way, "strict")) syscall(SYS_exit, 0);
    return 0;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    long number = argc > 2 ? atol(argv[2]) : 0;
    int status = 95;
    if (!strcmp(how, "churn")) { churn(number); allocate(1001); status = 0; }
    if (argc > 4) brief_pairs = atol(argv[4]);
    if (!strcmp(how, "threads")) status = threads((int)number, (size_t)atol(argv[3]));
    if (!strcmp(how, "descriptors")) return descriptors(argv[2]);
    if (!strcmp(how, "no descriptors")) status = no_descriptors();
    if (!strcmp(how, "closes")) status = closes((int)number);
    if (!strcmp(how, "filled")) status = filled();
    if (!strcmp(how, "sandboxed")) return sandboxed(argv[2]);
    printf("%s is done\n", how);
    return status;
}
