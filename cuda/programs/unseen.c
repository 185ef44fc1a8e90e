/* Memory that no allocation call asks for: device code, loaded anew in every step.
   usage: unseen HOW STEPS
     HOW  keep (every module stays) | drop (each is unloaded) | early (only the first steps load any)
          | shared (as keep; more than any program's own is in use from the start, as by others)
          | pages (none is loaded; an object of half a page stays of each step, and is seen) */
#include "driver_api.h"

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "keep";
    int steps = count > 2 ? atoi(words[2]) : 60;
    CUcontext context;
    CUdeviceptr p;
    reach_driver();
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult (*load)(void **, const void *) = dlsym(library, "cuModuleLoadData");
    CUresult (*unload)(void *) = dlsym(library, "cuModuleUnload");
    MUST(cu(Init)(0));
    MUST(cu(PrimaryRetain)(&context, 0));
    MUST(cu(CtxSetCurrent)(context));
    MUST(cu(MemAlloc)(&p, 4096));
    for (int i = 0; !strcmp(how, "shared") && i < 1100; i++) {
        void *module;
        MUST(load(&module, ".version 7.0\n.target sm_52\n"));
    }
    for (int i = 1; i <= steps; i++) {
        void *module = NULL;
        if (!strcmp(how, "pages")) {
            MUST(cu(MemAlloc)(&p, 1 << 20));
            step("");
            continue;
        }
        if (strcmp(how, "early") || i <= steps / 5) MUST(load(&module, ".version 7.0\n.target sm_52\n"));
        if (!strcmp(how, "drop")) MUST(unload(module));
        step("");
    }
    return 0;
}
