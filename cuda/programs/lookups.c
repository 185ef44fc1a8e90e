/* Looks `cudaMalloc` up in every way, from wherever its arguments say, and prints whose it got (who.c) or the loader's message.
   usage: lookups ACTION …
     local=PATH global=PATH deep=PATH deepglobal=PATH   dlopen; the handle is kept under the file's name
     close=NAME                     dlclose
     default next program weak direct version=V nextversion=V
                                    look it up (or call it) from this program and call what was found
     NAME:default …                 the same from a library that was opened (this file with -DPLUGIN)
     NAME:handle                    dlsym on its handle
   With -DWEAK the direct call is bound weakly, with -DSTRONG by necessity. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime_api.h"
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WEAK
extern cudaError_t cudaMalloc(void **, size_t) __attribute__((weak));
#elif defined STRONG
extern cudaError_t cudaMalloc(void **, size_t);
#else
static cudaError_t (*const cudaMalloc)(void **, size_t) = NULL;
#endif

typedef cudaError_t (*allocator)(void **, size_t);

static void call(const char *how, allocator found) {
    void *p = NULL;
    if (!found) {
        const char *words = dlerror();
        printf("%s: %s\n", how, words ? words : "no words");
        if (dlerror()) printf("%s: said twice\n", how);
        return;
    }
    cudaError_t status = found(&p, 8);
    printf("%s: %d from %u\n", how, status, (unsigned)((uintptr_t)p >> 56));
}

void look(const char *how) {
    dlerror();
    if (!strcmp(how, "default")) call(how, (allocator)dlsym(RTLD_DEFAULT, "cudaMalloc"));
    else if (!strcmp(how, "next")) call(how, (allocator)dlsym(RTLD_NEXT, "cudaMalloc"));
    else if (!strcmp(how, "program")) call(how, (allocator)dlsym(dlopen(NULL, RTLD_LAZY), "cudaMalloc"));
    else if (!strncmp(how, "version=", 8)) call(how, (allocator)dlvsym(RTLD_DEFAULT, "cudaMalloc", how + 8));
    else if (!strncmp(how, "nextversion=", 12)) call(how, (allocator)dlvsym(RTLD_NEXT, "cudaMalloc", how + 12));
    else if (!strcmp(how, "weak")) {
        /* with the preload there is always something to call: it answers 3, and gives nothing */
        void *p = NULL;
        if (!cudaMalloc || cudaMalloc(&p, 8) == 3) printf("weak: nothing\n");
        else printf("weak: %u\n", (unsigned)((uintptr_t)p >> 56));
    } else if (!strcmp(how, "direct")) call(how, cudaMalloc);
    else printf("%s?\n", how);
}

#ifndef PLUGIN
static struct { const char *name; void *handle; } opened[16];

static void **place(const char *name, size_t length) {
    for (int i = 0; i < 16; i++) {
        if (!opened[i].name) opened[i].name = strndup(name, length);
        if (strlen(opened[i].name) == length && !strncmp(opened[i].name, name, length)) return &opened[i].handle;
    }
    exit(89);
}

static void open_it(const char *path, int mode) {
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    void *handle = dlopen(path, mode);
    if (!handle) { printf("%s\n", dlerror()); return; }
    *place(name, strlen(name)) = handle;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        char *action = argv[i], *colon = strchr(action, ':'), *path = strchr(action, '=');
        path = path ? path + 1 : path;
        if (!strncmp(action, "local=", 6)) open_it(path, RTLD_LAZY);
        else if (!strncmp(action, "now=", 4)) open_it(path, RTLD_NOW);
        else if (!strncmp(action, "global=", 7)) open_it(path, RTLD_LAZY | RTLD_GLOBAL);
        else if (!strncmp(action, "deep=", 5)) open_it(path, RTLD_NOW | RTLD_DEEPBIND);
        else if (!strncmp(action, "deeplazy=", 9)) open_it(path, RTLD_LAZY | RTLD_DEEPBIND);
        else if (!strncmp(action, "elsewhere=", 10)) {
            void *handle = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
            printf("elsewhere: %s\n", handle ? "opened" : dlerror());
        }
        else if (!strncmp(action, "close=", 6)) {
            void **handle = place(path, strlen(path));
            printf("close: %d\n", dlclose(*handle));
        } else if (!strncmp(action, "gone=", 5)) {
            printf("%s %s\n", path, dlopen(path, RTLD_LAZY | RTLD_NOLOAD) ? "is loaded" : "is gone");
        } else if (colon) {
            void *handle = *place(action, colon - action);
            dlerror();
            if (!strcmp(colon + 1, "handle")) { call(colon + 1, (allocator)dlsym(handle, "cudaMalloc")); continue; }
            void (*its)(const char *) = (void (*)(const char *))dlsym(handle, "look");
            if (!its) { printf("%s\n", dlerror()); return 88; }
            its(colon + 1);
        } else look(action);
    }
    return 0;
}
#endif
