/* Memory of others: blocks of a helper process opened here, and files of another API. None of it is this process's. */
#pragma once
#include "families.h"
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define HELPER_SOCKET 3

/* What the helper process, which has its own driver, lets this one open. */
struct offer { CUshare blocks[4], pointers[2]; int physical, pool; };
static struct offer offer;
static int helper = -1;
static CUpool opened_pool;

/* The helper's life: it makes what it offers, hands it over, and stays until the other end is gone. */
static int be_helper(void) {
    CUcontext context;
    CUdeviceptr block;
    struct offer made = {.physical = -1, .pool = -1};
    reach_driver();
    if (!has(IpcGet) || !has(PoolExport) || !has(PoolExportAt) || !has(Export)) return 1;
    MUST(cu(Init)(0));
    MUST(cu(CtxCreate)(&context, 0, 0));
    for (int i = 0; i < 4; i++) {
        MUST(cu(MemAlloc)(&block, 1000 + 1000000 * i));
        MUST(cu(IpcGet)(&made.blocks[i], block));
    }
    CUpoolprops wish = {.type = 1, .handle_types = 1, .place = {1, 0}};
    CUpool pool;
    MUST(cu(PoolCreate)(&pool, &wish));
    for (int i = 0; i < 2; i++) {
        MUST(cu(AllocPool)(&block, 5000, pool, NULL));
        MUST(cu(PoolExportAt)(&made.pointers[i], block));
    }
    CUprop prop = {.type = 1, .handle_types = 1, .location = {1, 0}};
    CUhandle physical;
    int fds[2];
    MUST(cu(Create)(&physical, GRANULE, &prop, 0));
    MUST(cu(PoolExport)(&fds[0], pool, 1, 0));
    MUST(cu(Export)(&fds[1], physical, 1, 0));
    char room[CMSG_SPACE(sizeof fds)] = {0}, end;
    struct iovec data = {&made, sizeof made};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(control), fds, sizeof fds);
    if (sendmsg(HELPER_SOCKET, &message, 0) < 0) return 1;
    while (read(HELPER_SOCKET, &end, 1) > 0) {}
    return 0;
}

extern char **environ;

/* Starts the helper as a program of its own, which nobody traces and which writes no truth log. */
static void start_helper(const char *program) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) return;
    int count = 0, kept = 0;
    while (environ[count]) count++;
    char **clean = calloc(count + 1, sizeof *clean);
    for (int i = 0; i < count; i++)
        if (strncmp(environ[i], "LD_PRELOAD=", 11) && strncmp(environ[i], "SIMGPU_LOG=", 11) &&
            strncmp(environ[i], "SIMGPU_FAIL=", 12) && strncmp(environ[i], "LEAKTRACE", 9))
            clean[kept++] = environ[i];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], HELPER_SOCKET);
    pid_t child;
    char *arguments[] = {(char *)program, "helper", NULL};
    int failed = posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, clean);
    posix_spawn_file_actions_destroy(&actions);
    free(clean);
    close(ends[1]);
    int fds[2] = {-1, -1};
    char room[CMSG_SPACE(sizeof fds)];
    struct iovec data = {&offer, sizeof offer};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (failed || recvmsg(ends[0], &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof offer || !CMSG_FIRSTHDR(&message)) {
        close(ends[0]);
        return;
    }
    memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fds);
    offer.pool = fds[0];
    offer.physical = fds[1];
    helper = ends[0];
}

/* Once there is a context. */
static void open_offer(void) {
    if (helper >= 0 && has(PoolImport)) MUST(cu(PoolImport)(&opened_pool, (void *)(intptr_t)offer.pool, 1, 0));
}

/* A block, which may be open already, or the helper's physical memory. */
static int opened_begin(struct thread *t, struct living *l) {
    if (helper < 0 || !has(IpcOpen)) return 0;
    l->handle = NULL;
    if (below(t, 4) == 0) {
        CUhandle foreign;
        MUST(cu(Import)(&foreign, (void *)(intptr_t)offer.physical, 1));
        l->address = foreign;
        l->handle = l; /* not an address */
        return 1;
    }
    MUST(cu(IpcOpen)(&l->address, offer.blocks[below(t, 4)], 1));
    return 1;
}

static int pointer_begin(struct thread *t, struct living *l) {
    if (!opened_pool || !has(PoolImportAt)) return 0;
    MUST(cu(PoolImportAt)(&l->address, opened_pool, &offer.pointers[below(t, 2)]));
    return 1;
}

static int external_begin(struct thread *t, struct living *l) {
    if (!has(ExtImport)) return 0;
    memset(&l->external, 0, sizeof l->external);
    struct external *e = &l->external;
    int fd = memfd_create("external", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 1 << 20)) exit(92);
    CUimport wish = {.type = 1, .handle = {fd}, .bytes = 1 << 20};
    MUST(cu(ExtImport)(&e->memory, &wish));
    for (int i = 0; i < 1 + below(t, 2); i++) {
        CUbuffer part = {.offset = 4096 * i, .bytes = 1 + below(t, 500000)};
        MUST(cu(ExtBuffer)(&e->buffer[i], e->memory, &part));
    }
    if (below(t, 3) == 0) {
        CUlevels levels = {.offset = 65536, .shape = {64, 64, 0, 0x20, 1, 0}, .levels = 3};
        MUST(cu(ExtLevels)(&e->mipmap, e->memory, &levels));
    }
    return 1;
}

static void external_end(struct thread *t, struct living *l) {
    struct external *e = &l->external;
    int import_first = below(t, 2);
    if (import_first) MUST(cu(ExtDestroy)(e->memory));
    for (int i = 0; i < 2; i++)
        if (e->buffer[i]) MUST(cu(MemFree)(e->buffer[i]));
    if (e->mipmap) MUST(cu(MipDestroy)(e->mipmap));
    if (!import_first) MUST(cu(ExtDestroy)(e->memory));
}
