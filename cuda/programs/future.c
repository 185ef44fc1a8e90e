/* Calls a driver's allocator in the form of today and in one that is newer than any list.
   usage: future proc | dlsym */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef unsigned long long P;

int main(int count, char **words) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); return 90; }
    int by_name = count > 1 && !strcmp(words[1], "dlsym");
    int (*find)(const char *, void **, int, uint64_t, int *) = dlsym(library, "cuGetProcAddress_v2");
    int (*old)(P *, size_t) = NULL, (*new)(P *, size_t, int) = NULL, (*end)(P) = NULL;
    if (by_name) {
        old = dlsym(library, "cuMemAlloc_v2"), new = dlsym(library, "cuMemAlloc_v3"), end = dlsym(library, "cuMemFree_v2");
    } else {
        find("cuMemAlloc", (void **)&old, 12000, 0, NULL);
        find("cuMemAlloc", (void **)&new, 15000, 0, NULL);
        find("cuMemFree", (void **)&end, 12000, 0, NULL);
    }
    P a, b, c;
    if (old(&a, 1000) || new(&b, 2000, 16) || old(&c, 3000) || end(c)) return 1;
    printf("%d\n", b != 0);
    return 0;
}
