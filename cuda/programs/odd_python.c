/* A program that has a Python in it as far as a look from outside goes, of a build whose frames nobody knows.
   -DTEXT=… what it says it is, -DDEBUG_BUILD: with a name that only debug builds have. */
#include <stddef.h>

extern int cudaMalloc(void **, size_t);

const char *Py_GetVersion(void) { return TEXT; }
int Py_IsInitialized(void) { return 1; }
/* Whoever reads this as a thread's state, dies. */
void *PyGILState_GetThisThreadState(void) { return (void *)16; }
long PyCode_Type[64], PyUnicode_Type[64], PyBytes_Type[64], _PyRuntime[512];
#ifdef DEBUG_BUILD
long _Py_RefTotal;
#endif

int main(void) {
    void *memory;
    return cudaMalloc(&memory, 4321);
}
