/* What a program for aarch64 is started by: has the emulator run it, with the same arguments and environment. Linked
   statically, so that libraries for aarch64 to be preloaded are not its business. Where one is preloaded, so is the
   stand-in for the call that the emulator does not have (process_vm_readv.c). */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **arguments) {
    char *preload = getenv("LD_PRELOAD"), *more;
    if (preload && *preload && !strstr(preload, STAND_IN) && asprintf(&more, "%s:" STAND_IN, preload) > 0)
        setenv("LD_PRELOAD", more, 1);
    char **all = calloc(count + 8, sizeof *all);
    int n = 0;
    all[n++] = EMULATOR;
    all[n++] = "-L";
    all[n++] = ROOT;
    all[n++] = "-0";
    all[n++] = arguments[0];
    all[n++] = PROGRAM;
    for (int i = 1; i < count; i++) all[n++] = arguments[i];
    execv(EMULATOR, all);
    perror(EMULATOR);
    return 127;
}
