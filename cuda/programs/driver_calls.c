/* Random allocations and frees over every family of driver memory.
   usage: driver_calls SEED OPERATIONS INSTANTS THREADS CONTEXT END
     CONTEXT  primary | own
     END      keep (exit with memory alive) | destroy (end the context first) | reset (primary only)
   At each instant all threads rest, leaktrace_step is called, and the length of the truth log is printed.

   With END = progress there are no instants: each thread makes its operations, and the first calls leaktrace_step and
   prints a line per 100 of its own. Then the program waits to be killed. END = finish does the same and ends. What each
   thread allocates and frees depends on SEED alone. */
#include "driver_api.h"
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRANULE (2ull << 20)
#define MOST 48

enum { NONE, LINEAR, PITCHED, MANAGED, HOST, HOST_OLD, ASYNC, ASYNC_T, MAPPED, KINDS };

struct living { int kind; CUdeviceptr address; void *host; CUhandle handle; size_t bytes; };
struct thread { int number; uint64_t random; struct living living[MOST]; };

static CUcontext context;
static int operations, instants, threads;
static int progress;
static pthread_barrier_t rest;

static void allocate(struct living *l, uint64_t *random) {
    l->kind = 1 + chance(random) % (KINDS - 1);
    l->bytes = 1 + chance(random) % (chance(random) % 4 ? 5000 : 3000000);
    size_t pitch;
    switch (l->kind) {
    case LINEAR: MUST(cu(MemAlloc)(&l->address, l->bytes)); break;
    case PITCHED: MUST(cu(MemAllocPitch)(&l->address, &pitch, 1 + l->bytes % 3000, 1 + chance(random) % 50, 4)); break;
    case MANAGED: MUST(cu(MemManaged)(&l->address, l->bytes, 1)); break;
    case HOST: MUST(cu(HostAlloc)(&l->host, l->bytes, 0)); break;
    case HOST_OLD: MUST(cu(AllocHost)(&l->host, l->bytes)); break;
    case ASYNC: MUST(cu(AllocAsync)(&l->address, l->bytes, NULL)); break;
    case ASYNC_T: MUST(cu(AllocAsyncT)(&l->address, l->bytes, NULL)); break;
    case MAPPED: {
        l->bytes = GRANULE * (1 + chance(random) % 3);
        CUprop prop = {.type = 1, .location = {1, 0}};
        CUaccess access = {{1, 0}, 3};
        MUST(cu(Reserve)(&l->address, l->bytes, 0, 0, 0));
        MUST(cu(Create)(&l->handle, l->bytes, &prop, 0));
        MUST(cu(Map)(l->address, l->bytes, 0, l->handle, 0));
        MUST(cu(SetAccess)(l->address, l->bytes, &access, 1));
        /* PyTorch and NCCL release the handle at once and let the mapping keep the memory */
        if (chance(random) % 2) { MUST(cu(Release)(l->handle)); l->handle = 0; }
        else if (chance(random) % 3 == 0) {
            CUhandle again;
            MUST(cu(Retain)(&again, (void *)l->address));
            MUST(cu(Release)(again));
        }
    }
    }
}

static void end(struct living *l, uint64_t *random) {
    switch (l->kind) {
    case HOST: case HOST_OLD: MUST(cu(FreeHost)(l->host)); break;
    case ASYNC: case ASYNC_T:
        if (chance(random) % 3 == 0) MUST(cu(MemFree)(l->address));
        else if (chance(random) % 2) MUST(cu(FreeAsync)(l->address, NULL));
        else MUST(cu(FreeAsyncT)(l->address, NULL));
        break;
    case MAPPED:
        if (l->handle && chance(random) % 2) { MUST(cu(Release)(l->handle)); l->handle = 0; }
        MUST(cu(Unmap)(l->address, l->bytes));
        if (l->handle) MUST(cu(Release)(l->handle));
        MUST(cu(AddressFree)(l->address, l->bytes));
        break;
    default: MUST(cu(MemFree)(l->address));
    }
    l->kind = NONE;
}

static void work(struct thread *t, int count) {
    for (int i = 0; i < count; i++) {
        struct living *l = &t->living[chance(&t->random) % MOST];
        if (l->kind) end(l, &t->random);
        else allocate(l, &t->random);
        if (progress && t->number == 0 && i % 100 == 99) {
            step(NULL);
            if (write(1, "on\n", 3) != 3) exit(92);
        }
    }
}

static long log_length(void) {
    const char *path = getenv("SIMGPU_LOG");
    struct stat s;
    return path && stat(path, &s) == 0 ? (long)s.st_size : -1;
}

static void *thread(void *argument) {
    struct thread *t = argument;
    MUST(cu(CtxSetCurrent)(context));
    if (progress) {
        work(t, operations);
        return NULL;
    }
    /* where the instants lie is chance, but the same chance for every thread: they meet there */
    uint64_t where = 88172645463325252ull + operations;
    for (int i = 0; i < instants; i++) {
        work(t, 1 + chance(&where) % (2 * operations / instants));
        pthread_barrier_wait(&rest);
        if (t->number == 0) {
            step(NULL);
            printf("instant %d %ld\n", i + 1, log_length());
        }
        pthread_barrier_wait(&rest);
    }
    work(t, 37);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    uint64_t seed = strtoull(argv[1], NULL, 10);
    operations = atoi(argv[2]);
    instants = atoi(argv[3]);
    threads = atoi(argv[4]);
    int own = !strcmp(argv[5], "own");
    progress = !strcmp(argv[6], "progress") || !strcmp(argv[6], "finish");
    reach_driver();
    CUdevice device;
    MUST(cu(Init)(0));
    MUST(cu(DeviceGet)(&device, 0));
    if (own) MUST(cu(CtxCreate)(&context, 0, device));
    else MUST(cu(PrimaryRetain)(&context, device));
    MUST(cu(CtxSetCurrent)(context));
    pthread_barrier_init(&rest, NULL, threads);
    struct thread *all = calloc(threads, sizeof *all);
    pthread_t *handles = calloc(threads, sizeof *handles);
    for (int i = 0; i < threads; i++) {
        all[i].number = i;
        all[i].random = seed * 2654435761u + 1 + i;
        if (i) pthread_create(&handles[i], NULL, thread, &all[i]);
    }
    thread(&all[0]);
    for (int i = 1; i < threads; i++) pthread_join(handles[i], NULL);
    if (!strcmp(argv[6], "progress")) for (;;) pause();
    if (!strcmp(argv[6], "destroy")) {
        if (own) MUST(cu(CtxDestroy)(context));
        else MUST(cu(PrimaryRelease)(device));
    } else if (!strcmp(argv[6], "reset")) {
        MUST(cu(PrimaryReset)(device));
    }
    printf("end %ld\n", log_length());
    return 0;
}
