/* What the families of `families.c` share: the live objects, the threads that hold them, and the accounts of both. Each
   family has a header of its own above this one: begin makes an object, act does something else with it, end ends it. */
#pragma once
#include "families_api.h"
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define GRANULE (2ull << 20)
#define MOST 64    /* things that a thread holds */
#define PARTS 4    /* granules of a reserved range */
#define HANDLES 3  /* physical handles for it, and references of each */
#define BLOCKS 3   /* allocations of a graph */
#define POOLS 3    /* pools of a thread */
#define INNER 4    /* allocations in a context of its own */

enum {
    NONE, LINEAR, PITCHED, MANAGED, HOST, HOST_OLD, REGISTERED, ASYNC, ASYNC_T, POOLED, ARRAY, MIPMAP, RANGE, TEAM,
    OPENED, POINTER, EXTERNAL, GRAPH, CONTEXT, GREEN, FAMILIES
};

/* A pool. It stays in the accounts after its end, for what is still allocated from it. */
struct pool { CUpool handle; long long used; int destroyed; struct pool *next; };

struct range {
    CUdeviceptr base;
    size_t unit;
    int on_host[HANDLES], references[HANDLES], maps[HANDLES];
    CUhandle handle[HANDLES][HANDLES];
    signed char part[PARTS]; /* the handle that is mapped there, from 1 */
};
struct team { CUhandle object, memory; CUdeviceptr linear; size_t bytes; };
struct external { CUexternal memory; CUdeviceptr buffer[2]; CUmipmap mipmap; };
struct graph {
    CUgraph graph;
    CUexec exec;
    int free_on_launch, count, inside[BLOCKS], live[BLOCKS]; /* inside: freed by a node of its own */
    CUdeviceptr at[BLOCKS];
    size_t bytes[BLOCKS];
};
struct inner { CUcontext context; CUgreen green; long long device, host, charged; };

struct living {
    int kind;
    size_t bytes;
    CUdeviceptr address;
    void *handle, *memory; /* an array's; the program's own memory */
    struct pool *pool;
    union { struct range range; struct team team; struct external external; struct graph graph; struct inner inner; };
};

struct thread {
    int number;
    uint64_t random;
    CUstream stream;
    struct pool *pools[POOLS];
    struct living *living[MOST];
    /* The accounts: bytes asked for of the device and the host, and what the device is charged outside of pools.
       Threads end what others began, so only the sums over all threads say anything. */
    long long device, host, charged;
};

static inline int below(struct thread *t, unsigned bound) { return (int)(chance(&t->random) % bound); }

/* What a device allocates for so many bytes. */
static inline long long rounded(size_t bytes) {
    size_t unit = bytes < (1 << 20) ? 512 : GRANULE;
    return (long long)((bytes + unit - 1) / unit * unit);
}

static inline void book_device(struct thread *t, int sign, size_t bytes) {
    t->device += sign * (long long)bytes;
    t->charged += sign * rounded(bytes);
}
static inline void book_host(struct thread *t, int sign, size_t bytes) { t->host += sign * (long long)bytes; }
/* Memory of graphs and pools, whose charge is what they reserve. */
static inline void book_reserved(struct thread *t, int sign, size_t bytes) { t->device += sign * (long long)bytes; }

static inline void book_pool(struct thread *t, struct pool *pool, int sign, size_t bytes) {
    book_reserved(t, sign, bytes);
    if (pool) __atomic_fetch_add(&pool->used, sign * rounded(bytes), __ATOMIC_RELAXED);
}
