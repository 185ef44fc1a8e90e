/* cuBLAS: versions and modes. SIMGPU_MAJOR is the number in the library's SONAME. */

SIM(int) cublasGetVersion_v2(void *handle, int *version) { OUT_INT(version, SIMGPU_MAJOR * 10000 + MINOR * 100); return 0; }
SIM(size_t) cublasGetCudartVersion(void) { return (size_t)runtime_version(); }
