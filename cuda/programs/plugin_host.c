/* Loads argv[1] RTLD_LOCAL and calls its `plugin`: nothing of CUDA is in this program's own scope. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    void (*plugin)(void) = library ? (void (*)(void))dlsym(library, "plugin") : NULL;
    if (!plugin) { fprintf(stderr, "%s\n", dlerror()); return 90; }
    plugin();
    return 0;
}
