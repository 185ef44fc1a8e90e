/* What crowd.c loads again and again. */
#include "runtime_api.h"
extern cudaError_t cudaMalloc(void **, size_t);
void *plugin(size_t bytes) { void *p = 0; cudaMalloc(&p, bytes); return p; }
