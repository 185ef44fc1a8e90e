/* NVRTC: compiles anything to a few bytes that nobody reads. */

enum { IMAGE_BYTES = 16 };

SIM(int) nvrtcVersion(int *major, int *minor) { OUT_INT(major, SIMGPU_MAJOR); OUT_INT(minor, 0); return 0; }
SIM(int) nvrtcGetPTXSize(void *program, size_t *bytes) { OUT_SIZE(bytes, IMAGE_BYTES); return 0; }
SIM(int) nvrtcGetPTX(void *program, char *image) { OUT_ZERO(image, IMAGE_BYTES); return 0; }
SIM(int) nvrtcGetCUBINSize(void *program, size_t *bytes) { OUT_SIZE(bytes, IMAGE_BYTES); return 0; }
SIM(int) nvrtcGetCUBIN(void *program, char *image) { OUT_ZERO(image, IMAGE_BYTES); return 0; }
SIM(int) nvrtcGetProgramLogSize(void *program, size_t *bytes) { OUT_SIZE(bytes, 1); return 0; }
SIM(int) nvrtcGetProgramLog(void *program, char *log) { OUT_ZERO(log, 1); return 0; }
SIM(int) nvrtcGetLoweredName(void *program, const char *expression, const char **name) { OUT_TEXT(name); return 0; }
SIM(int) nvrtcGetNumSupportedArchs(int *count) { OUT_INT(count, 0); return 0; }
