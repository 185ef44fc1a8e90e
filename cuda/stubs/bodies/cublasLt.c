/* cuBLASLt: one algorithm for everything, without workspace. */

SIM(size_t) cublasLtGetVersion(void) { return SIMGPU_MAJOR * 10000 + MINOR * 100; }
SIM(size_t) cublasLtGetCudartVersion(void) { return (size_t)runtime_version(); }

/* A heuristic's result: algorithm 64 bytes, workspace size 8, state 4, waves 4, reserved 16. */
enum { RESULT_BYTES = 96 };

SIM(int) cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d,
                                        void *preference, int requested, void *results, int *count) {
    int found = requested > 0 && results != NULL;
    if (found) memset(results, 0, RESULT_BYTES);
    OUT_INT(count, found);
    return 0;
}
