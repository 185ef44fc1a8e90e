/* NCCL that never reaches another rank: each takes the others to have what it has. A sum is its own value, what is
 * gathered is its own data once for each rank. */

struct unique { char bytes[128]; };
struct comm { int ranks, rank; };

SIM(int) ncclGetVersion(int *version) { OUT_INT(version, 22809); return 0; }
SIM(int) ncclGetUniqueId(struct unique *id) { memset(id, 7, sizeof *id); return 0; }
SIM(const char *) ncclGetErrorString(int result) { return result ? "simulated error" : "no error"; }
SIM(const char *) ncclGetLastError(struct comm *comm) { return ""; }

static int create(struct comm **out, int ranks, int rank) {
    *out = calloc(1, sizeof **out);
    **out = (struct comm){ ranks, rank };
    return 0;
}

SIM(int) ncclCommInitRank(struct comm **out, int ranks, struct unique id, int rank) { return create(out, ranks, rank); }
SIM(int) ncclCommInitRankConfig(struct comm **out, int ranks, struct unique id, int rank, void *config) {
    return create(out, ranks, rank);
}
SIM(int) ncclCommInitRankScalable(struct comm **out, int ranks, int rank, int ids, void *id, void *config) {
    return create(out, ranks, rank);
}
SIM(int) ncclCommInitAll(struct comm **out, int count, const int *devices) {
    for (int i = 0; i < count; i++) create(&out[i], count, i);
    return 0;
}
SIM(int) ncclCommSplit(struct comm *from, int color, int key, struct comm **out, void *config) {
    return create(out, 1, 0);
}
SIM(int) ncclCommShrink(struct comm *from, int *without, int count, struct comm **out, void *config, int flags) {
    return create(out, from->ranks - count, 0);
}
SIM(int) ncclCommDestroy(struct comm *comm) { free(comm); return 0; }
SIM(int) ncclCommAbort(struct comm *comm) { free(comm); return 0; }
SIM(int) ncclCommCount(const struct comm *comm, int *count) { OUT_INT(count, comm->ranks); return 0; }
SIM(int) ncclCommUserRank(const struct comm *comm, int *rank) { OUT_INT(rank, comm->rank); return 0; }
SIM(int) ncclCommGetAsyncError(struct comm *comm, int *error) { OUT_INT(error, 0); return 0; }

/* ---- memory --------------------------------------------------------------------------------------------- */

SIM(int) ncclMemAlloc(void **out, size_t bytes) {
    int (*allocate)(void **, size_t) = (int (*)(void **, size_t))driver("cuMemAlloc_v2");
    return allocate && allocate(out, bytes) == 0 ? 0 : 1;
}
SIM(int) ncclMemFree(void *at) {
    int (*release)(void *) = (int (*)(void *))driver("cuMemFree_v2");
    return release && release(at) == 0 ? 0 : 1;
}

/* ---- collectives ---------------------------------------------------------------------------------------- */

static size_t width(int type) {
    static const unsigned char bytes[] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };
    return type >= 0 && type < (int)sizeof bytes ? bytes[type] : 1;
}

static int copy(void *to, const void *from, size_t count, int type, void *stream) {
    static int (*async)(void *, const void *, size_t, void *);
    /* A rank that is not the root has no buffer to receive into. */
    if (!to || !from || to == from || count == 0) return 0;
    if (!async) async = (int (*)(void *, const void *, size_t, void *))driver("cuMemcpyAsync");
    return async && async(to, from, count * width(type), stream) == 0 ? 0 : 1;
}

SIM(int) ncclAllReduce(const void *from, void *to, size_t n, int type, int op, void *comm, void *stream) {
    return copy(to, from, n, type, stream);
}
SIM(int) ncclReduce(const void *from, void *to, size_t n, int type, int op, int root, void *comm, void *stream) {
    return copy(to, from, n, type, stream);
}

/* Broadcasts in a group, one from each rank, gather what the ranks have. Those of others come from a buffer that holds
 * nothing yet: at the group's end they get what this rank sent. */
static __thread struct { void *to; size_t n; int type; void *stream; } awaited[64];
static __thread struct { const void *from; size_t n; int type; } sent;
static __thread int depth, count;

SIM(int) ncclGroupStart(void) {
    if (depth++ == 0) count = 0, sent.from = NULL;
    return 0;
}
SIM(int) ncclGroupEnd(void) {
    int failed = 0;
    if (depth == 0 || --depth > 0) return 0;
    for (int i = 0; i < count; i++)
        if (sent.from && awaited[i].n == sent.n && awaited[i].type == sent.type)
            failed |= copy(awaited[i].to, sent.from, sent.n, sent.type, awaited[i].stream);
    return failed;
}
SIM(int) ncclBroadcast(const void *from, void *to, size_t n, int type, int root, struct comm *comm, void *stream) {
    if (depth > 0 && root == comm->rank) {
        sent.from = from, sent.n = n, sent.type = type;
    } else if (depth > 0 && count < (int)(sizeof awaited / sizeof awaited[0])) {
        awaited[count].to = to, awaited[count].n = n, awaited[count].type = type, awaited[count++].stream = stream;
        return 0;
    }
    return copy(to, from, n, type, stream);
}
SIM(int) ncclAllGather(const void *from, void *to, size_t n, int type, struct comm *comm, void *stream) {
    int failed = 0;
    for (int rank = 0; rank < comm->ranks; rank++)
        failed |= copy((char *)to + rank * n * width(type), from, n, type, stream);
    return failed;
}
SIM(int) ncclReduceScatter(const void *from, void *to, size_t n, int type, int op, struct comm *comm, void *stream) {
    return copy(to, (const char *)from + comm->rank * n * width(type), n, type, stream);
}
SIM(int) ncclAlltoAll(const void *from, void *to, size_t n, int type, struct comm *comm, void *stream) {
    int failed = 0;
    for (int rank = 0; rank < comm->ranks; rank++)
        failed |= copy((char *)to + rank * n * width(type), (const char *)from + comm->rank * n * width(type), n, type, stream);
    return failed;
}
