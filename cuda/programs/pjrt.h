/* XLA's plugin interface as words: each function takes a structure that begins with its size, and gives an error or null. */
#include <stdint.h>

typedef uint64_t word;
typedef void *(*entry)(word *);

/* Words before the first function, and the functions of version 0.116. */
enum { HEAD = 5, FUNCTIONS = 132 };
