/* A preload that stands in for `dlsym`, as a good many tools do: counts what is asked for by a name that begins with "cu",
   and tells at the end in the file COUNTS. -DTAIL: jumps on, so that the caller stays the caller; else a plain call. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __aarch64__
#define FIRST_GLIBC "GLIBC_2.17"
#else
#define FIRST_GLIBC "GLIBC_2.2.5"
#endif

void *(*real)(void *, const char *);
static int calls;

__attribute__((constructor)) static void find(void) {
    if (!real) real = dlvsym(RTLD_NEXT, "dlsym", FIRST_GLIBC);
}

__attribute__((used)) void *count(const char *name) {
    find();
    if (name && name[0] == 'c' && name[1] == 'u') __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    return (void *)real;
}

#ifdef TAIL
__asm__(".globl dlsym\n.type dlsym, @function\ndlsym:\n"
#ifdef __aarch64__
        "stp x29, x30, [sp, #-32]!\nstp x0, x1, [sp, #16]\nmov x0, x1\nbl count\nmov x16, x0\n"
        "ldp x0, x1, [sp, #16]\nldp x29, x30, [sp], #32\nbr x16\n"
#else
        "push %rdi\npush %rsi\nsub $8, %rsp\nmov %rsi, %rdi\ncall count@PLT\nadd $8, %rsp\npop %rsi\npop %rdi\njmp *%rax\n"
#endif
        ".size dlsym, . - dlsym\n");
#else
void *dlsym(void *handle, const char *name) {
    count(name);
    void *found = real(handle, name);
    __asm__ volatile("" : "+r"(found)); /* a call, not a jump */
    return found;
}
#endif

__attribute__((destructor)) static void tell(void) {
    FILE *file = getenv("COUNTS") ? fopen(getenv("COUNTS"), "a") : NULL;
    if (file) { fprintf(file, "dlsym %d\n", calls); fclose(file); }
}
