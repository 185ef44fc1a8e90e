/* Two contexts on every visible device. In each of them memory is taken; a third of it is freed by another thread, which has
   the other context current, and one context of each device is destroyed with what it still has.
   With an argument, so many contexts come and go first, each taking memory along.
   Prints "pid PID", and "held DEVICE BYTES" for what is alive at the end. */
#include "driver_api.h"
#include <pthread.h>
#include <unistd.h>

enum { DEVICES = 8, CONTEXTS = 2, BLOCKS = 9 };
static CUcontext contexts[DEVICES][CONTEXTS];
static CUdeviceptr blocks[DEVICES][CONTEXTS][BLOCKS];

static size_t size(int device, int context, int block) { return 1000 + 100 * device + 10 * context + block; }

static void *frees(void *argument) {
    int device = (int)(intptr_t)argument;
    for (int c = 0; c < CONTEXTS; c++) {
        MUST(cu(CtxSetCurrent)(contexts[device][!c]));
        for (int b = 0; b < BLOCKS; b += 3) MUST(cu(MemFree)(blocks[device][c][b]));
    }
    return NULL;
}

int main(int argc, char **argv) {
    reach_driver();
    MUST(cu(Init)(0));
    int count = 0;
    CUdevice device;
    while (count < DEVICES && cu(DeviceGet)(&device, count) == 0) count++;
    printf("pid %d\n", (int)getpid());
    for (int n = 0; argc > 1 && n < atoi(argv[1]); n++) {
        CUcontext context;
        CUdeviceptr block;
        MUST(cu(DeviceGet)(&device, 0));
        MUST(cu(CtxCreate)(&context, 0, device));
        MUST(cu(MemAlloc)(&block, 100000 + n));
        MUST(cu(CtxDestroy)(context));
    }
    for (int d = 0; d < count; d++) {
        for (int c = 0; c < CONTEXTS; c++) {
            MUST(cu(DeviceGet)(&device, d));
            MUST(cu(CtxCreate)(&contexts[d][c], 0, device));
            for (int b = 0; b < BLOCKS; b++) MUST(cu(MemAlloc)(&blocks[d][c][b], size(d, c, b)));
        }
        pthread_t thread;
        pthread_create(&thread, NULL, frees, (void *)(intptr_t)d);
        pthread_join(thread, NULL);
        /* current here: the second one; what the first holds goes with it */
        MUST(cu(CtxDestroy)(contexts[d][0]));
        size_t held = 0;
        for (int b = 0; b < BLOCKS; b++)
            if (b % 3) held += size(d, 1, b);
        printf("held %d %zu\n", d, held);
    }
    return 0;
}
