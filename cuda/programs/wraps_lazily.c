/* A preload with functions of its own in place of some that a preload may call itself. Each looks up the real one at its first
   call, with the name that it has. */
#define RTLD_NEXT ((void *)-1L)
extern void *dlsym(void *, const char *);

#define WRAP(name)                                                                      \
    long name(long a, long b, long c, long d) {                                         \
        static long (*real)(long, long, long, long);                                    \
        if (!real) real = (long (*)(long, long, long, long))dlsym(RTLD_NEXT, #name);    \
        return real(a, b, c, d);                                                        \
    }
WRAP(dl_iterate_phdr)
WRAP(dladdr1)
WRAP(strlen)
WRAP(bcmp)
