/* Opens the driver, takes memory, gives it back, closes the driver; argv[1] times, another library taking its place in
   between. Keeps what it took last. */
#include "driver_api.h"
#include <sys/mman.h>

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    for (int i = 0; i < rounds; i++) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        if (!driver) { fprintf(stderr, "%s\n", dlerror()); return 90; }
        CUcontext context;
        CUdeviceptr p;
        int (*init)(unsigned) = dlsym(driver, "cuInit");
        int (*create)(CUcontext *, unsigned, CUdevice) = dlsym(driver, "cuCtxCreate_v2");
        int (*take)(CUdeviceptr *, size_t) = dlsym(driver, "cuMemAlloc_v2");
        int (*give)(CUdeviceptr) = dlsym(driver, "cuMemFree_v2");
        MUST(init(0));
        MUST(create(&context, 0, 0));
        MUST(take(&p, 1000 + i));
        if (i + 1 == rounds) break;
        MUST(give(p));
        if (dlclose(driver)) return 92;
        if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) printf("stays\n");
        /* what comes next comes to lie elsewhere */
        for (int page = 0; page < 400; page++) mmap(NULL, 64 << 10, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    printf("done\n");
    return 0;
}
