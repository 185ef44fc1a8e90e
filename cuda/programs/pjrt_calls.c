/* Makes, moves and ends buffers of plugins (pjrt_plugin.c) in every way the interface has, and says at each step how many
   bytes are alive on both devices.
   usage: pjrt_calls PLUGIN … (each is loaded, and all is done with each) */
#include "pjrt.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static const word *api;
static void (*end_step)(const char *);

static void *call(int slot, word *a) { return ((entry)api[HEAD + slot])(a); }
static int has(int slot) { return HEAD + slot < (int)(api[0] / 8); }
static void must(int slot, word *a) {
    if (call(slot, a)) exit(3);
}
static word from_host(word elements, void *device, void *memory) {
    word dims[] = {elements}, a[16] = {120, 0, 1, 0, 11, (word)dims, 1, 0, 0, 0, (word)device, (word)memory};
    return call(22, a) ? 0 : a[14];
}
static void end(int slot, word object) {
    word a[] = {24, 0, object};
    must(slot, a);
}
static word compile(word outputs, word bytes, word donated) {
    word options[] = {outputs, bytes, donated}, a[] = {56, 0, 1, 0, (word)options, sizeof options, 0};
    must(20, a);
    return a[6];
}
static void *run(word executable, word devices, word *in[], word count, word *out[]) {
    word a[] = {80, 0, executable, 0, (word)in, devices, count, (word)out, 0, 0};
    return call(55, a);
}

static long live, code;
/* Prints what is alive: buffers, and the code of programs that were called. */
static void point(const char *name, long change) {
    live += change;
    printf("%s %ld %ld\n", name, live, code);
    if (end_step) end_step(0);
}

int main(int argc, char **argv) {
    *(void **)&end_step = dlsym(RTLD_DEFAULT, "leaktrace_step");
    for (int i = 1; i < argc; i++) {
        void *plugin = dlopen(argv[i], RTLD_NOW);
        const void *(*get)(void), *(*again)(void);
        *(void **)&get = dlsym(plugin, "GetPjrtApi");
        *(void **)&again = dlsym(plugin, "GetPjrtApi");
        if (!get || (api = get()) != again()) return 4;
        void *(*device)(void), *(*host)(void);
        *(void **)&device = dlsym(plugin, "plugin_device"), *(void **)&host = dlsym(plugin, "plugin_host_memory");

        word first = from_host(1000, 0, 0);
        point("from host", 4000);
        word there = from_host(250, device(), 0), pinned = from_host(500, 0, host());
        point("another device, and the host", 1000);
        word copied[5] = {40, 0, first, (word)device()};
        must(69, copied);
        point("copied to a device", 4000);
        word kept[5] = {40, 0, first, (word)host()};
        if (has(92)) must(92, kept);
        point("copied to the host", 0);

        /* Twice on one device, then on both: what it gives is asked once for each. */
        word executable = compile(2, 256, 0), outs[2][2], *out[] = {outs[0], outs[1]}, *in[] = {&first, &first};
        if (run(executable, 1, in, 1, out)) return 5;
        code += 2000;
        point("outputs", 512);
        end(58, outs[0][0]), end(58, outs[0][1]);
        if (run(executable, 2, in, 1, out)) return 5;
        point("outputs on both", 512);
        /* Another one may come to lie where it lay. */
        end(50, executable), end(58, outs[0][0]);
        code -= 2000;
        executable = compile(1, 4096, 1);
        word given = first, *donated[] = {&given};
        if (run(executable, 1, donated, 1, out)) return 5;
        end(58, first);
        code += 1000;
        point("donated", 4096 - 4000 - 256);
        end(53, executable), end(50, executable);
        code -= 1000;
        end(67, outs[0][0]);
        point("deleted", -4096);
        end(58, outs[0][0]);
        point("destroyed", 0);

        word waits[6] = {48, 0, there}, view[14] = {112, 0, 1, 4096, 0, 0, 11, 0, (word)device()};
        if (has(125)) {
            must(125, waits);
            end(58, there);
            there = waits[5];
        }
        point("moved", 0);
        word cast[8] = {64, 0, there};
        if (has(131)) {
            must(131, cast);
            end(58, there);
            there = cast[7];
        }
        point("cast", 0);
        if (has(93)) must(93, view);
        point("borrowed", 0);
        word more[10] = {80, 0, 1};
        if (has(112)) must(112, more);
        point("uninitialized", has(112) ? 2048 : 0);
        /* One error names its device (the second), one does not. */
        if (from_host(1u << 30, device(), 0)) return 6;
        if (!run(compile(1, 1ul << 40, 0), 1, in, 0, out)) return 6;
        point("failed", 0);
        end(58, there), end(58, pinned), end(58, copied[4]), end(58, outs[0][1]), end(58, outs[1][0]), end(58, outs[1][1]);
        if (kept[4]) end(58, kept[4]);
        if (view[12]) end(58, view[12]);
        if (more[9]) end(58, more[9]);
        point("ended", -live);
    }
}
