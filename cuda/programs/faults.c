/* Every family begun and ended, ROUNDS times; a call that fails is passed over with all that depends on it, and a free that
   fails is tried once more at the end. Some memory is left alive. Prints how many calls failed.
   usage: faults ROUNDS */
#include "families_api.h"
#include <sys/mman.h>
#include <unistd.h>

static int failed;
static int ok(int status) {
    failed += status != 0;
    return status == 0;
}

#define KEEP 512
static struct again { int (*end)(void *, void *); void *a, *b; } again[KEEP];
static int waiting;

/* Ends something; later once more, if it could not be ended now. */
static void end(int (*call)(void *, void *), void *a, void *b) {
    if (!ok(call(a, b)) && waiting < KEEP) again[waiting++] = (struct again){call, a, b};
}

static int mem_free(void *p, void *unused) { (void)unused; return cu(MemFree)((CUdeviceptr)p); }
static int free_async(void *p, void *s) { return cu(FreeAsync)((CUdeviceptr)p, s); }
static int free_host(void *p, void *unused) { (void)unused; return cu(FreeHost)(p); }
static int unregister(void *p, void *unused) { (void)unused; return cu(Unregister)(p); }
static int array_destroy(void *p, void *unused) { (void)unused; return cu(ArrayDestroy)(p); }
static int mip_destroy(void *p, void *unused) { (void)unused; return cu(MipDestroy)(p); }
static int release(void *h, void *unused) { (void)unused; return cu(Release)((CUhandle)h); }
static int unmap(void *p, void *n) { return cu(Unmap)((CUdeviceptr)p, (size_t)n); }
static int address_free(void *p, void *n) { return cu(AddressFree)((CUdeviceptr)p, (size_t)n); }
static int pool_destroy(void *p, void *unused) { (void)unused; return cu(PoolDestroy)(p); }
static int ext_destroy(void *p, void *unused) { (void)unused; return cu(ExtDestroy)(p); }
static int ipc_close(void *p, void *unused) { (void)unused; return cu(IpcClose)((CUdeviceptr)p); }
static int exec_destroy(void *p, void *unused) { (void)unused; return cu(ExecDestroy)(p); }
#define PTR(x) ((void *)(uintptr_t)(x))

static void range(size_t bytes) {
    CUprop wish = {.type = 1, .handle_types = 1, .location = {1, 0}};
    CUdeviceptr at = 0;
    CUhandle h = 0, twice = 0;
    if (!ok(cu(Reserve)(&at, bytes, 0, 0, 0))) return;
    int mapped = 0;
    if (ok(cu(Create)(&h, bytes, &wish, 0))) {
        mapped = ok(cu(Map)(at, bytes, 0, h, 0));
        if (mapped && ok(cu(Retain)(&twice, PTR(at)))) end(release, PTR(twice), NULL);
        int fd = -1;
        if (ok(cu(Export)(&fd, h, 1, 0))) {
            if (ok(cu(Import)(&twice, PTR(fd), 1))) end(release, PTR(twice), NULL);
            close(fd);
        }
        end(release, PTR(h), NULL);
    }
    if (mapped) end(unmap, PTR(at), PTR(bytes));
    end(address_free, PTR(at), PTR(bytes));
}

static void graph(void *stream, size_t bytes, int captured) {
    CUgraph g;
    CUexec exec;
    CUnode node;
    CUdeviceptr at = 0;
    if (captured) {
        if (!ok(cu(CaptureBegin)(stream, 2))) return;
        ok(cu(AllocAsync)(&at, bytes, stream));
        if (!ok(cu(CaptureEnd)(stream, &g)) && !ok(cu(CaptureEnd)(stream, &g))) return;
    } else {
        CUallocnode wish = {.pool = {.type = 1, .place = {1, 0}}, .bytes = bytes};
        if (!ok(cu(GraphCreate)(&g, 0))) return;
        if (ok(cu(NodeAlloc)(&node, g, NULL, 0, &wish))) at = wish.address;
    }
    if (at && ok(cu(Instantiate)(&exec, g, 0))) {
        if (ok(cu(GraphLaunch)(exec, stream))) end(captured ? free_async : mem_free, PTR(at), stream);
        end(exec_destroy, exec, NULL);
    }
    ok(cu(GraphDestroy)(g));
}

int main(int count, char **words) {
    int rounds = count > 1 ? atoi(words[1]) : 4;
    CUcontext context;
    void *stream = NULL, *host;
    CUdeviceptr p;
    reach_driver();
    MUST(cu(Init)(0));
    MUST(cu(PrimaryRetain)(&context, 0));
    MUST(cu(CtxSetCurrent)(context));
    MUST(cu(StreamCreate)(&stream, 1));
    for (int i = 1; i <= rounds; i++) {
        size_t n = 1000 * i, large = (size_t)i << 21, pitch;
        if (ok(cu(MemAlloc)(&p, n)) && i % 2) end(mem_free, PTR(p), NULL);
        if (ok(cu(MemAllocPitch)(&p, &pitch, 100 * i, 7, 4)) && i % 2) end(mem_free, PTR(p), NULL);
        if (ok(cu(MemManaged)(&p, 2 * n, 1)) && i % 2) end(mem_free, PTR(p), NULL);
        if (ok(cu(HostAlloc)(&host, 3 * n, 0)) && i % 2) end(free_host, host, NULL);
        if (ok(cu(AllocHost)(&host, 4 * n)) && i % 2) end(free_host, host, NULL);
        host = aligned_alloc(4096, 4096 * i);
        if (ok(cu(Register)(host, 4096 * i, 0))) end(unregister, host, NULL);
        if (ok(cu(AllocAsync)(&p, 5 * n, stream)) && i % 2) end(free_async, PTR(p), stream);
        if (ok(cu(AllocAsync)(&p, 6 * n, stream)) && i % 2) end(mem_free, PTR(p), NULL);
        CUpool pool;
        CUpoolprops wish = {.type = 1, .handle_types = 1, .place = {1, 0}};
        if (ok(cu(PoolCreate)(&pool, &wish))) {
            if (ok(cu(AllocPool)(&p, 7 * n, pool, stream)) && i % 2) end(free_async, PTR(p), stream);
            end(pool_destroy, pool, NULL);
        }
        CUarray array;
        CUmipmap mip;
        CUshape2 flat = {64 * i, 32, 0x20, 4};
        CUshape3 deep = {64 * i, 32, 8, 0x01, 2, 0};
        if (ok(cu(ArrayCreate)(&array, &flat)) && i % 2) end(array_destroy, array, NULL);
        if (ok(cu(Array3D)(&array, &deep)) && i % 2) end(array_destroy, array, NULL);
        if (ok(cu(MipCreate)(&mip, &deep, 3)) && i % 2) end(mip_destroy, mip, NULL);
        range(large);
        CUteam team_wish = {1, large, 1, 0};
        CUhandle team;
        if (ok(cu(TeamCreate)(&team, &team_wish))) end(release, PTR(team), NULL);
        if (ok(cu(MemAlloc)(&p, large))) {
            CUshare share;
            CUdeviceptr opened;
            if (ok(cu(IpcGet)(&share, p)) && ok(cu(IpcOpen)(&opened, share, 1))) end(ipc_close, PTR(opened), NULL);
            end(mem_free, PTR(p), NULL);
        }
        CUexternal external;
        CUimport file = {.type = 1, .bytes = large};
        file.handle.fd = memfd_create("external", 0);
        if (ftruncate(file.handle.fd, (off_t)large) == 0 && ok(cu(ExtImport)(&external, &file))) {
            CUbuffer whole = {0, large, 0, {0}};
            if (ok(cu(ExtBuffer)(&p, external, &whole))) end(mem_free, PTR(p), NULL);
            end(ext_destroy, external, NULL);
        }
        graph(stream, 8 * n, 0);
        graph(stream, 9 * n, 1);
    }
    while (waiting > 0) {
        struct again *last = &again[--waiting];
        last->end(last->a, last->b);
    }
    printf("%d failed\n", failed);
    return 0;
}
