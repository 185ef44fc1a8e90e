/* Random legal operations over every family of driver memory.
   usage: families SEED OPERATIONS INSTANTS THREADS CONTEXT END [check]
     CONTEXT  primary | own
     END      keep (exit with memory alive) | destroy (end the context first) | reset (primary only)
              clean (end everything, one by one)
   At each instant all threads rest, leaktrace_step is called, and the length of the truth log is printed.

   With END = progress there are no instants: each thread makes its operations, and the first calls leaktrace_step and
   prints a line per 100 of its own. Then the program waits to be killed. END = finish does the same and ends. There
   what each thread allocates and frees depends on SEED alone; with instants, threads also end what others began.

   With `check` it keeps accounts, prints at each instant "own N DEVICE HOST", bytes that it holds itself, and stops with
   status 93 where what the device says is in use is something else. */
#include "families.h"
#include "families_vmm.h"
#include "families_shared.h"
#include "families_graph.h"
#include <sys/stat.h>

#define MAIL 16
#define WEIGHTS 128

static CUcontext context;
static CUdesc green_share;
static CUpool default_pool;
static int operations, instants, threads, progress, checking;
static struct thread *all;
static _Atomic(struct living *) mail[MAIL];
static struct pool *pools;
static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t rest;

/* Of so many beginnings, how many are of which family. What costs the driver much is rare. */
static const struct { int kind, weight; } table[] = {
    {LINEAR, 30}, {PITCHED, 6}, {MANAGED, 6}, {HOST, 5}, {HOST_OLD, 3}, {REGISTERED, 6}, {ASYNC, 18}, {ASYNC_T, 8},
    {POOLED, 12}, {ARRAY, 6}, {MIPMAP, 3}, {RANGE, 4}, {TEAM, 3}, {OPENED, 4}, {POINTER, 2}, {EXTERNAL, 2}, {GRAPH, 8},
    {CONTEXT, 1}, {GREEN, 1},
};
static unsigned char chances[WEIGHTS];

/* Pools belong to the thread that made them; what was allocated from them may be anywhere. */
static void pool_act(struct thread *t) {
    if (!has(PoolCreate)) return;
    int i = below(t, POOLS);
    struct pool *p = t->pools[i];
    if (!p) {
        p = t->pools[i] = calloc(1, sizeof *p);
        CUpoolprops wish = {.type = 1, .handle_types = 1, .place = {1, 0}};
        MUST(cu(PoolCreate)(&p->handle, &wish));
        uint64_t threshold = (uint64_t)below(t, 3) << 25;
        MUST(cu(PoolSet)(p->handle, 4, &threshold));
        pthread_mutex_lock(&pools_lock);
        p->next = pools;
        pools = p;
        pthread_mutex_unlock(&pools_lock);
        return;
    }
    switch (below(t, 4)) {
    case 0:
        MUST(cu(PoolDestroy)(p->handle));
        p->destroyed = 1;
        t->pools[i] = NULL;
        break;
    case 1: MUST(cu(PoolTrim)(p->handle, below(t, 1 << 24))); break;
    case 2: MUST(cu(PoolTrim)(default_pool, 0)); break;
    default: MUST(cu(StreamSync)(t->stream));
    }
}

/* Calls that fail, or do nothing, leave no trace. */
static void fail(struct thread *t) {
    CUdeviceptr p;
    void *h;
    int failed = 1;
    switch (below(t, 7)) {
    case 0: failed = cu(MemAlloc)(&p, 1ull << 50); break;
    case 1: failed = cu(MemAlloc)(&p, 0); break;
    case 2: failed = cu(MemFree)(0x5150); break;
    case 3: cu(MemFree)(0); cu(FreeHost)(NULL); break;
    case 4: failed = cu(Unregister)(all); break;
    case 5: failed = cu(AllocAsync)(&p, 1ull << 50, t->stream); break;
    default: failed = cu(HostAlloc)(&h, 0, 0);
    }
    if (!failed) { fprintf(stderr, "a call that must fail did not\n"); exit(91); }
}

static size_t shape(struct thread *t, CUshape3 *s) {
    int dimensions = 1 + below(t, 3);
    *s = (CUshape3){.width = 1 + below(t, 300), .format = 0x20, .channels = 1u << below(t, 3)};
    if (dimensions > 1) s->height = 1 + below(t, 60);
    if (dimensions > 2) s->depth = 1 + below(t, 8);
    return s->width * (s->height ? s->height : 1) * (s->depth ? s->depth : 1) * 4 * s->channels;
}

static void array_begin(struct thread *t, struct living *l) {
    CUshape3 s;
    l->bytes = shape(t, &s);
    if (s.depth || below(t, 2)) {
        MUST(cu(Array3D)(&l->handle, &s));
    } else {
        CUshape2 flat = {s.width, s.height, s.format, s.channels};
        MUST(cu(ArrayCreate)(&l->handle, &flat));
    }
    book_device(t, 1, l->bytes);
}

static void mipmap_begin(struct thread *t, struct living *l) {
    CUshape3 s;
    shape(t, &s);
    unsigned levels = 1 + below(t, 4);
    size_t widest = s.width > s.height ? s.width : s.height;
    MUST(cu(MipCreate)(&l->handle, &s, levels));
    l->bytes = 0;
    for (unsigned i = 0; i < levels && (i == 0 || widest >> i || s.depth >> i); i++) {
        size_t n = 4 * s.channels, extents[3] = {s.width, s.height, s.depth};
        for (int d = 0; d < 3; d++) n *= extents[d] >> i ? extents[d] >> i : 1;
        l->bytes += n;
    }
    book_device(t, 1, l->bytes);
}

/* A context with memory in it, which it takes along when it ends. */
static int inner_begin(struct thread *t, struct living *l, int green) {
    struct inner *in = &l->inner;
    memset(in, 0, sizeof *in);
    if (green) {
        if (!has(GreenCreate) || !green_share) return 0;
        MUST(cu(GreenCreate)(&in->green, green_share, 0, 1));
        MUST(cu(GreenContext)(&in->context, in->green));
        MUST(cu(CtxPush)(in->context));
    } else {
        MUST(cu(CtxCreate)(&in->context, 0, 0));
    }
    struct thread books = {.random = t->random};
    for (int i = 0; i < INNER; i++) {
        struct living inside;
        inside.bytes = 1 + below(t, 100000);
        switch (below(t, 5)) {
        case 0: MUST(cu(MemAlloc)(&inside.address, inside.bytes)); book_device(&books, 1, inside.bytes); break;
        case 1: MUST(cu(MemManaged)(&inside.address, inside.bytes, 1)); book_device(&books, 1, inside.bytes); break;
        case 2: MUST(cu(HostAlloc)(&inside.handle, inside.bytes, 0)); book_host(&books, 1, inside.bytes); break;
        case 3: array_begin(&books, &inside); break;
        default: mipmap_begin(&books, &inside);
        }
    }
    MUST(cu(CtxPop)(NULL));
    in->device = books.device; in->host = books.host; in->charged = books.charged;
    t->device += in->device; t->host += in->host; t->charged += in->charged;
    return 1;
}

static void inner_end(struct thread *t, struct living *l) {
    struct inner *in = &l->inner;
    if (in->green) MUST(cu(GreenDestroy)(in->green));
    else MUST(cu(CtxDestroy)(in->context));
    t->device -= in->device; t->host -= in->host; t->charged -= in->charged;
}

static int begin(struct thread *t, struct living *l, int kind) {
    size_t pitch, rows;
    l->bytes = 1 + below(t, below(t, 8) ? 5000 : 3000000);
    switch (kind) {
    case LINEAR: MUST(cu(MemAlloc)(&l->address, l->bytes)); break;
    case PITCHED:
        rows = 1 + below(t, 50);
        MUST(cu(MemAllocPitch)(&l->address, &pitch, 1 + l->bytes % 3000, rows, 4));
        l->bytes = pitch * rows;
        break;
    case MANAGED: MUST(cu(MemManaged)(&l->address, l->bytes, 1)); break;
    case HOST: MUST(cu(HostAlloc)(&l->handle, l->bytes, 0)); break;
    case HOST_OLD: MUST(cu(AllocHost)(&l->handle, l->bytes)); break;
    case REGISTERED:
        if (!has(Register)) return 0;
        if (!l->memory && posix_memalign(&l->memory, 4096, 8192)) exit(92);
        MUST(cu(Register)(l->memory, 1 + l->bytes % 8192, 0));
        break;
    case ASYNC: MUST(cu(AllocAsync)(&l->address, l->bytes, below(t, 2) ? t->stream : NULL)); break;
    case ASYNC_T: MUST(cu(AllocAsyncT)(&l->address, l->bytes, NULL)); break;
    case POOLED:
        if (!has(AllocPool) || !(l->pool = t->pools[below(t, POOLS)])) return 0;
        if (below(t, 2)) MUST(cu(AllocPool)(&l->address, l->bytes, l->pool->handle, t->stream));
        else MUST(cu(AllocPoolT)(&l->address, l->bytes, l->pool->handle, NULL));
        book_pool(t, l->pool, 1, l->bytes);
        break;
    case ARRAY: array_begin(t, l); break;
    case MIPMAP: mipmap_begin(t, l); break;
    case RANGE: return range_begin(t, l);
    case TEAM: return team_begin(t, l);
    case OPENED: return opened_begin(t, l);
    case POINTER: return pointer_begin(t, l);
    case EXTERNAL: return external_begin(t, l);
    case GRAPH: return graph_begin(t, l);
    case CONTEXT: return inner_begin(t, l, 0);
    case GREEN: return inner_begin(t, l, 1);
    }
    switch (kind) {
    case LINEAR: case PITCHED: case MANAGED: book_device(t, 1, l->bytes); break;
    case HOST: case HOST_OLD: book_host(t, 1, l->bytes); break;
    case ASYNC: case ASYNC_T: book_reserved(t, 1, l->bytes); break;
    }
    return 1;
}

static void free_in_order(struct thread *t, struct living *l) {
    int how = below(t, 4);
    if (how == 0) MUST(cu(MemFree)(l->address));
    else if (how == 1) MUST(cu(FreeAsyncT)(l->address, NULL));
    else MUST(cu(FreeAsync)(l->address, how == 2 ? t->stream : NULL));
}

static void end(struct thread *t, struct living *l) {
    switch (l->kind) {
    case LINEAR: case PITCHED: case MANAGED: MUST(cu(MemFree)(l->address)); book_device(t, -1, l->bytes); break;
    case HOST: case HOST_OLD: MUST(cu(FreeHost)(l->handle)); book_host(t, -1, l->bytes); break;
    case REGISTERED: MUST(cu(Unregister)(l->memory)); break;
    case ASYNC: case ASYNC_T: free_in_order(t, l); book_reserved(t, -1, l->bytes); break;
    case POOLED: book_pool(t, l->pool, -1, l->bytes); free_in_order(t, l); break;
    case ARRAY: MUST(cu(ArrayDestroy)(l->handle)); book_device(t, -1, l->bytes); break;
    case MIPMAP: MUST(cu(MipDestroy)(l->handle)); book_device(t, -1, l->bytes); break;
    case RANGE: range_end(t, l); break;
    case TEAM: team_end(t, l); break;
    case OPENED:
        if (l->handle) MUST(cu(Release)(l->address));
        else MUST(cu(IpcClose)(l->address));
        break;
    case POINTER: free_in_order(t, l); break;
    case EXTERNAL: external_end(t, l); break;
    case GRAPH: graph_end(t, l); break;
    case CONTEXT: case GREEN: inner_end(t, l); break;
    }
    l->kind = NONE;
}

static void operation(struct thread *t) {
    int i = below(t, MOST), what = below(t, 64);
    struct living *l = t->living[i];
    if (what == 0) {
        fail(t);
    } else if (what == 1) {
        pool_act(t);
    } else if (what == 2 && has(GraphTrim)) {
        MUST(cu(GraphTrim)(0));
    } else if (what < 12 && threads > 1 && !progress) {
        t->living[i] = atomic_exchange(&mail[below(t, MAIL)], l);
    } else if (!l->kind) {
        int kind = chances[below(t, WEIGHTS)];
        if (begin(t, l, kind)) l->kind = kind;
    } else if (l->kind == RANGE && below(t, 6)) {
        range_act(t, l);
    } else if (l->kind == GRAPH && below(t, 6)) {
        graph_act(t, l);
    } else {
        end(t, l);
    }
}

static void work(struct thread *t, int count) {
    for (int i = 0; i < count; i++) {
        operation(t);
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

/* What the threads hold, and what the device must say is in use for it. */
static void check(int instant) {
    long long device = 0, host = 0, charged = 0, value;
    for (int i = 0; i < threads; i++) {
        device += all[i].device;
        host += all[i].host;
        charged += all[i].charged;
    }
    for (struct pool *p = pools; p; p = p->next) {
        if (p->destroyed) { charged += p->used; continue; }
        MUST(cu(PoolGet)(p->handle, 5, &value));
        charged += value;
    }
    MUST(cu(PoolGet)(default_pool, 5, &value));
    charged += value;
    MUST(cu(GraphMemory)(0, 2, &value));
    charged += value;
    size_t left, total;
    MUST(cu(MemInfo)(&left, &total));
    printf("own %d %lld %lld\n", instant, device, host);
    if ((long long)(total - left) != charged) {
        fprintf(stderr, "instant %d: %zu bytes in use, should be %lld\n", instant, total - left, charged);
        exit(93);
    }
}

static void *thread(void *argument) {
    struct thread *t = argument;
    MUST(cu(CtxSetCurrent)(context));
    MUST(cu(StreamCreate)(&t->stream, 1));
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
            if (checking) check(i + 1);
            printf("instant %d %ld\n", i + 1, log_length());
        }
        pthread_barrier_wait(&rest);
    }
    work(t, 37);
    return NULL;
}

/* Ends what is alive, wherever it is: all of it, or contexts only. */
static void end_all(int only_contexts) {
    struct thread *t = &all[0];
    for (int i = 0; i < threads * MOST + MAIL; i++) {
        struct living *l = i < threads * MOST ? all[i / MOST].living[i % MOST] : mail[i - threads * MOST];
        if (l->kind && (!only_contexts || l->kind == CONTEXT || l->kind == GREEN)) end(t, l);
    }
    if (only_contexts) return;
    for (struct pool *p = pools; p; p = p->next)
        if (!p->destroyed) MUST(cu(PoolDestroy)(p->handle));
    if (opened_pool) MUST(cu(PoolDestroy)(opened_pool));
    MUST(cu(PoolTrim)(default_pool, 0));
    MUST(cu(GraphTrim)(0));
    pools = NULL;
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "helper")) return be_helper();
    if (argc != 7 && argc != 8) return 2;
    uint64_t seed = strtoull(argv[1], NULL, 10);
    operations = atoi(argv[2]);
    instants = atoi(argv[3]);
    threads = atoi(argv[4]);
    int own = !strcmp(argv[5], "own");
    const char *finally = argv[6];
    progress = !strcmp(finally, "progress") || !strcmp(finally, "finish");
    checking = argc == 8;
    unsigned k = 0;
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
        for (int n = 0; n < table[i].weight; n++) chances[k++ % WEIGHTS] = table[i].kind;
    if (k != WEIGHTS) { fprintf(stderr, "the weights sum to %u\n", k); return 92; }
    start_helper(argv[0]);
    if (checking && helper < 0) { fprintf(stderr, "no helper\n"); return 92; }
    reach_driver();
    CUdevice device;
    MUST(cu(Init)(0));
    MUST(cu(DeviceGet)(&device, 0));
    if (own) MUST(cu(CtxCreate)(&context, 0, device));
    else MUST(cu(PrimaryRetain)(&context, device));
    MUST(cu(CtxSetCurrent)(context));
    open_offer();
    if (has(PoolDefault)) MUST(cu(PoolDefault)(&default_pool, device));
    CUresource whole;
    if (has(Resource) && cu(Resource)(device, &whole, 1) == 0) MUST(cu(Describe)(&green_share, &whole, 1));
    pthread_barrier_init(&rest, NULL, threads);
    all = calloc(threads, sizeof *all);
    pthread_t *handles = calloc(threads, sizeof *handles);
    for (int i = 0; i < MAIL; i++) mail[i] = calloc(1, sizeof(struct living));
    for (int i = 0; i < threads; i++) {
        all[i].number = i;
        all[i].random = seed * 2654435761u + 1 + i;
        for (int l = 0; l < MOST; l++) all[i].living[l] = calloc(1, sizeof(struct living));
    }
    for (int i = 1; i < threads; i++) pthread_create(&handles[i], NULL, thread, &all[i]);
    thread(&all[0]);
    for (int i = 1; i < threads; i++) pthread_join(handles[i], NULL);
    if (!strcmp(finally, "progress")) for (;;) pause();
    if (!strcmp(finally, "clean")) {
        end_all(0);
    } else if (!strcmp(finally, "destroy")) {
        end_all(1);
        if (own) MUST(cu(CtxDestroy)(context));
        else MUST(cu(PrimaryRelease)(device));
    } else if (!strcmp(finally, "reset")) {
        end_all(1);
        MUST(cu(PrimaryReset)(device));
    }
    if (checking && !strcmp(finally, "clean")) check(0);
    printf("end %ld\n", log_length());
    return 0;
}
