/* Runs a command for which some system calls fail, as under a sandbox:  refuse ERRNO SYSCALL… -- COMMAND…
   `create` is an open that may create a file. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct { const char *name; int number; } CALLS[] = {
    {"ftruncate", SYS_ftruncate}, {"fallocate", SYS_fallocate}, {"flock", SYS_flock},   {"fstat", SYS_newfstatat},
    {"fcntl", SYS_fcntl},         {"prlimit", SYS_prlimit64},   {"rename", SYS_rename}, {"uname", SYS_uname},
    {"pwrite", SYS_pwrite64},     {"nanosleep", SYS_clock_nanosleep}, {"process_vm_readv", SYS_process_vm_readv},
};

int main(int argc, char **argv) {
    struct sock_filter filter[64];
    unsigned count = 0;
    int at = 2;
#define ADD(...) filter[count++] = (struct sock_filter)__VA_ARGS__
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    unsigned refuse = SECCOMP_RET_ERRNO | (unsigned)atoi(argv[1]);
    int create = 0;
    for (; at < argc && strcmp(argv[at], "--"); at++) {
        if (!strcmp(argv[at], "create")) { create = 1; continue; }
        int number = -1;
        for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++)
            if (!strcmp(argv[at], CALLS[i].name)) number = CALLS[i].number;
        if (number < 0) { fprintf(stderr, "refuse: %s?\n", argv[at]); return 90; }
        ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1));
        ADD(BPF_STMT(BPF_RET | BPF_K, refuse));
    }
    if (create) {
        ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3));
        ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])));
        ADD(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_CREAT, 0, 1));
        ADD(BPF_STMT(BPF_RET | BPF_K, refuse));
    }
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    struct sock_fprog program = {(unsigned short)count, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("refuse: seccomp");
        return 77;
    }
    if (at + 1 >= argc) return 90;
    execvp(argv[at + 1], argv + at + 1);
    perror(argv[at + 1]);
    return 90;
}
