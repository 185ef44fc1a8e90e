/* Runs Python source in an interpreter that only this program can see.
   usage: embeds_python LIBPYTHON SOURCE
   The source finds `allocate()`: 4 KiB of the device, as a memoryview over its address; and `step()`, which ends a step. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

int cudaMalloc(void **, size_t);

struct method { const char *name; void *(*function)(void *, void *); int flags; const char *doc; };
static void *library;

static void *symbol(const char *name) {
    void *address = dlsym(library, name);
    if (!address) exit((fprintf(stderr, "no %s\n", name), 2));
    return address;
}
#define CALL(result, name, ...) ((result(*)(__VA_ARGS__))symbol(#name))

static void *allocate(void *self, void *arguments) {
    (void)self, (void)arguments;
    void *address = NULL;
    if (cudaMalloc(&address, 4096)) abort();
    return CALL(void *, PyMemoryView_FromMemory, char *, ptrdiff_t, int)(address, 4096, 0x100);
}

static void *step(void *self, void *arguments) {
    (void)self, (void)arguments;
    int (*leaktrace_step)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "leaktrace_step");
    if (leaktrace_step) leaktrace_step(NULL);
    return CALL(void *, PyLong_FromLong, long)(0);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 2;
    static struct method methods[] = {{"allocate", allocate, 4 /* METH_NOARGS */, NULL}, {"step", step, 4, NULL}};
    CALL(void, Py_InitializeEx, int)(0);
    void *main_module = CALL(void *, PyImport_AddModule, const char *)("__main__");
    for (int i = 0; i < 2; i++) {
        void *function = CALL(void *, PyCFunction_NewEx, struct method *, void *, void *)(&methods[i], NULL, NULL);
        CALL(int, PyObject_SetAttrString, void *, const char *, void *)(main_module, methods[i].name, function);
    }
    int failed = CALL(int, PyRun_SimpleString, const char *)(argv[2]);
    return CALL(int, Py_FinalizeEx, void)() || failed;
}
