// An exception of C++ that passes through calls of the runtime: into them from below, and out to whoever made them.
// Prints the same however it is run. What it allocates last, 1001 bytes, has to be seen.
#include <cstdio>
#include <stdexcept>
extern "C" {
#include "runtime_api.h"
cudaError_t cudaMalloc(void **, size_t);
cudaError_t cudaFree(void *);
extern void (*cudaInside)(void);
}

static void throws() {
    cudaInside = nullptr;
    throw std::runtime_error("from below");
}

int main() {
    void *kept = nullptr, *p = nullptr;
    cudaMalloc(&kept, 100);
    for (int i = 0; i < 100; i++) {
        try {
            cudaInside = throws;
            if (i % 2) cudaFree(kept); else cudaMalloc(&p, 64);
            std::puts("went on");
        } catch (const std::runtime_error &error) {
            if (i < 2) std::puts(error.what());
        }
        cudaMalloc(&p, 10);
        cudaFree(p);
    }
    cudaMalloc(&p, 1001);
    std::puts("done");
}
