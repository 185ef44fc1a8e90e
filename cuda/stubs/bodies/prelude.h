/* Put before the code of every stub library: how an out-parameter gets a sane value.
 *
 * Arguments arrive as words; a null pointer is always allowed. What callers read back must be initialised:
 * a stray size would become an allocation of many gigabytes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uintptr_t word;

/* Marks a function with a body of its own: the generator finds these by the word at the line's start. */
#define SIM(type) type

/* The minor version that a library reports, of the major version in its SONAME: the last there could be. A program
 * takes any minor version not below the one it was compiled with, and what it asks of it does nothing here. */
enum { MINOR = 99 };

/* Room for whatever a body keeps behind a handle. */
enum { HANDLE_BYTES = 512 };

#define OUT_INT(at, value) do { if (at) *(int *)(at) = (value); } while (0)
#define OUT_SIZE(at, value) do { if (at) *(size_t *)(at) = (value); } while (0)
#define OUT_ZERO(at, bytes) do { if (at) memset((void *)(at), 0, (bytes)); } while (0)
#define OUT_HANDLE(at) do { if (at) *(void **)(at) = calloc(1, HANDLE_BYTES); } while (0)
#define OUT_TEXT(at) do { if (at) *(const char **)(at) = "simulated"; } while (0)

/* The driver, for the few stubs that move or hold memory. It is open wherever a stub is called in earnest. */
__attribute__((unused)) static void *driver(const char *name) {
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    return library ? dlsym(library, name) : NULL;
}

/* The version of the CUDA runtime in this process, as 1000 * major + 10 * minor. */
__attribute__((unused)) static int runtime_version(void) {
    int (*get)(int *) = (int (*)(int *))dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion");
    int version = 13000;
    if (get) get(&version);
    return version;
}
