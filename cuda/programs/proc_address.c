/* Asks the driver for functions in every documented way and prints all it answers but addresses: the status, the query
   result, whether there is a function, and what it does with 1000 bytes.
   Reached by dlsym, or (with -DBY_LINK) by calling the exported symbols. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*find_v1)(const char *, void **, int, uint64_t);
typedef int (*find_v2)(const char *, void **, int, uint64_t, int *);
typedef unsigned long long pointer;

#ifdef BY_LINK
#define DECLARE_V1(name) extern int name(const char *, void **, int, uint64_t);
#define DECLARE_V2(name) extern int name(const char *, void **, int, uint64_t, int *);
DECLARE_V1(cuGetProcAddress)
DECLARE_V1(cuGetProcAddress_ptsz)
DECLARE_V2(cuGetProcAddress_v2)
DECLARE_V2(cuGetProcAddress_v2_ptsz)
#define FIND(name) name
#else
static void *library;
#define FIND(name) dlsym(library, #name)
#endif

static void *const UNTOUCHED = (void *)0x1234;

/* Calls what was found, so that a hook in front of the wrong function would show. */
static void use(const char *name, void *function) {
    pointer p = 0;
    int status;
    if (!strcmp(name, "cuMemAlloc")) status = ((int (*)(pointer *, size_t))function)(&p, 1000);
    else if (!strcmp(name, "cuMemAllocAsync")) status = ((int (*)(pointer *, size_t, void *))function)(&p, 1000, NULL);
    else if (!strcmp(name, "cuDriverGetVersion")) { int version; status = ((int (*)(int *))function)(&version); }
    else return;
    printf(" called %d%s", status, p ? " gave" : "");
}

static const char *const names[] = {"cuMemAlloc", "cuMemAllocAsync", "cuMemAlloc_v2", "cuDriverGetVersion", "cuNone",
                                    "", "malloc", "cuGetProcAddress", "cudaMalloc", "cuMemFree"};
static const int versions[] = {0, 2000, 3020, 11020, 11030, 12000, 13000, -1};

static void ask(const char *how, find_v1 v1, find_v2 v2) {
    if (!v1 && !v2) { printf("%s: none\n", how); return; }
    for (unsigned n = 0; n < sizeof names / sizeof *names; n++)
        for (unsigned v = 0; v < sizeof versions / sizeof *versions; v++)
            for (uint64_t flags = 0; flags < 5; flags++)
                for (int place = 0; place < (v2 ? 2 : 1); place++) {
                    void *function = UNTOUCHED;
                    int query = -7;
                    int status = v1 ? v1(names[n], &function, versions[v], flags)
                                    : v2(names[n], &function, versions[v], flags, place ? &query : NULL);
                    printf("%s %s %d %d: %d %d %s", how, names[n], versions[v], (int)flags, status, query,
                           function == UNTOUCHED ? "untouched" : function ? "found" : "null");
                    if (status == 0 && function && function != UNTOUCHED && versions[v] >= 3020) use(names[n], function);
                    printf("\n");
                    /* asking twice gives the same */
                    void *again = UNTOUCHED;
                    if (v2) v2(names[n], &again, versions[v], flags, NULL);
                    else v1(names[n], &again, versions[v], flags);
                    if (again != function) printf("another one\n");
                }
    int query = -7;
    void *function = UNTOUCHED;
    if (v2) {
        printf("%s nothing to store: %d", how, v2("cuMemAlloc", NULL, 12000, 0, &query));
        printf(" %d\n", query);
        printf("%s no name: %d", how, v2(NULL, &function, 12000, 0, &query));
    } else {
        printf("%s nothing to store: %d\n", how, v1("cuMemAlloc", NULL, 12000, 0));
        printf("%s no name: %d", how, v1(NULL, &function, 12000, 0));
    }
    printf(" %s\n", function == UNTOUCHED ? "untouched" : "touched");
}

int main(void) {
    void *context;
#ifdef BY_LINK
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
#else
    void *driver = library = dlopen("libcuda.so.1", RTLD_NOW);
#endif
    if (!driver) { fprintf(stderr, "%s\n", dlerror()); return 90; }
    if (((int (*)(unsigned))dlsym(driver, "cuInit"))(0)) return 91;
    if (((int (*)(void **, unsigned, int))dlsym(driver, "cuCtxCreate_v2"))(&context, 0, 0)) return 92;
    ask("v1", (find_v1)FIND(cuGetProcAddress), NULL);
    ask("v2", NULL, (find_v2)FIND(cuGetProcAddress_v2));
    ask("v1t", (find_v1)FIND(cuGetProcAddress_ptsz), NULL);
    ask("v2t", NULL, (find_v2)FIND(cuGetProcAddress_v2_ptsz));
    /* asked of itself: one name, two signatures */
    find_v2 v2 = (find_v2)FIND(cuGetProcAddress_v2);
    void *old = NULL, *new = NULL;
    int query;
    printf("itself: %d %d\n", v2("cuGetProcAddress", &old, 11030, 0, &query), v2("cuGetProcAddress", &new, 12000, 0, &query));
    if (old) ask("itself v1", (find_v1)old, NULL);
    if (new) ask("itself v2", NULL, (find_v2)new);
    return 0;
}
