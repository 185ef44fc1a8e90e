/* Sixty-four functions that call one another, with frames of different sizes: `outer` goes down so many of them and calls
   `then`; `left` and `right` do so by two different ways. */
typedef void then_t(void *);
typedef int step_t(int, then_t *, void *);
static step_t *const outers[], *const lefts[], *const rights[];

#define STEP(list, n)                                                                        \
    static __attribute__((noinline)) int list##_##n(int depth, then_t *then, void *data) {  \
        volatile char room[1 + (n) * 24 % 200];                                             \
        room[0] = 1;                                                                        \
        if (depth > 1) return list##s[(n + 1) % 64](depth - 1, then, data) + room[0];       \
        then(data);                                                                         \
        return room[0];                                                                     \
    }
#define EIGHT(X, list, n) \
    X(list, n##0) X(list, n##1) X(list, n##2) X(list, n##3) X(list, n##4) X(list, n##5) X(list, n##6) X(list, n##7)
#define ALL(X, list) \
    EIGHT(X, list, 0) EIGHT(X, list, 01) EIGHT(X, list, 02) EIGHT(X, list, 03) \
    EIGHT(X, list, 04) EIGHT(X, list, 05) EIGHT(X, list, 06) EIGHT(X, list, 07)
#define NAME(list, n) list##_##n,
#define CHAIN(list)                                     \
    ALL(STEP, list)                                     \
    static step_t *const list##s[] = {ALL(NAME, list)}; \
    int list(int depth, then_t *then, void *data) { return depth ? list##s[0](depth, then, data) : (then(data), 0); }

CHAIN(outer)
CHAIN(left)
CHAIN(right)
