/* Looks names up and calls a weak function while another thread opens and closes libraries without end.
   With -DPLUGIN: the library that looks. usage: closing TIMES PLUGIN LIBRARY */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime_api.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef PLUGIN
extern cudaError_t cudaHostUnregister(void *) __attribute__((weak));
void look(void) {
    dlsym(RTLD_DEFAULT, "cudaMalloc");
    dlsym(RTLD_NEXT, "cudaMalloc");
    if (cudaHostUnregister) cudaHostUnregister(NULL);
}
#else
static atomic_int over;
static const char *comes_and_goes;

static void *closes(void *unused) {
    (void)unused;
    while (!atomic_load(&over)) {
        void *library = dlopen(comes_and_goes, RTLD_NOW);
        if (!library || dlclose(library)) abort();
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4) return 89;
    comes_and_goes = argv[3];
    void *plugin = dlopen(argv[2], RTLD_NOW);
    if (!plugin) { fprintf(stderr, "%s\n", dlerror()); return 90; }
    void (*look)(void) = (void (*)(void))dlsym(plugin, "look");
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, closes, NULL);
    for (int i = 0; i < atoi(argv[1]); i++) look();
    atomic_store(&over, 1);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("done\n");
    return 0;
}
#endif
