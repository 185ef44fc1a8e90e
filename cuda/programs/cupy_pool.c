// A stand-in for two modules of CuPy's, by its documentation and by what Cython does for functions that modules give to
// others: with -DHOOKS `cupy.cuda.memory_hook`, which has the hooks of each thread, with -DPOOL `cupy.cuda.memory`, a pool that
// asks for them; without either one that is imported after them. Declares what it needs of Python, so that any interpreter
// will do.
#include <stddef.h>

typedef struct object object;
typedef struct { const char *name; object *(*call)(object *, object *); int flags; const char *doc; } method;
typedef struct {
    ptrdiff_t references;
    void *type, *init;
    ptrdiff_t index;
    void *copy;
    const char *name, *doc;
    ptrdiff_t size;
    method *methods;
    void *slots, *traverse, *clear, *free;
} definition;

object *PyModule_Create2(definition *, int);
object *PyCapsule_New(void *, const char *, void *);
void *PyCapsule_GetPointer(object *, const char *);
object *PyDict_New(void);
object *PyDict_GetItemString(object *, const char *);
int PyDict_SetItemString(object *, const char *, object *);
object *PyDict_Values(object *);
ptrdiff_t PyList_Size(object *);
object *PyList_GetItem(object *, ptrdiff_t);
int PyObject_SetAttrString(object *, const char *, object *);
object *PyObject_GetAttrString(object *, const char *);
object *PyObject_Call(object *, object *, object *);
object *PyImport_ImportModule(const char *);
object *PyTuple_New(ptrdiff_t);
object *PyLong_FromUnsignedLongLong(unsigned long long);
object *Py_BuildValue(const char *, ...);
int PyArg_ParseTuple(object *, const char *, ...);
void PyErr_Print(void);
void Py_IncRef(object *);
void Py_DecRef(object *);

#ifdef OTHER_FORM
static const char has_signature[] = "size_t (int __pyx_skip_dispatch)";
#else
static const char has_signature[] = "int (int __pyx_skip_dispatch)";
#endif
static const char get_signature[] = "PyObject *(int __pyx_skip_dispatch)";

#ifdef HOOKS

static __thread object *hooks;

static int has_hooks(int skip_dispatch) { return hooks != NULL; }

static object *get_hooks(int skip_dispatch) {
    if (!hooks) hooks = PyDict_New();
    Py_IncRef(hooks);
    return hooks;
}

static object *names(object *self, object *arguments) { return get_hooks(0); }

static method methods[] = {{"get_memory_hooks", names, 4, NULL}, {NULL, NULL, 0, NULL}};
static definition module = {1, NULL, NULL, 0, NULL, "memory_hook", NULL, -1, methods, NULL, NULL, NULL, NULL};

object *PyInit_memory_hook(void) {
    object *made = PyModule_Create2(&module, 1013), *given = PyDict_New();
    PyDict_SetItemString(given, "_has_memory_hooks", PyCapsule_New(has_hooks, has_signature, NULL));
    PyDict_SetItemString(given, "get_memory_hooks", PyCapsule_New(get_hooks, get_signature, NULL));
    PyObject_SetAttrString(made, "__pyx_capi__", given);
    return made;
}

#elif defined POOL

static int (*has_hooks)(int);
static object *(*get_hooks)(int);

// Blocks of one segment, of one size, that nobody has; the next one.
static unsigned long long free_blocks[4096], next;
static size_t free_count;
static unsigned long long used;

static void tell(const char *name, unsigned long long bytes, unsigned long long address) {
    if (!has_hooks(0)) return;
    object *hooks = get_hooks(0), *values = PyDict_Values(hooks), *none = PyTuple_New(0);
    for (ptrdiff_t i = 0; i < PyList_Size(values); i++) {
        object *hook = PyObject_GetAttrString(PyList_GetItem(values, i), name);
        object *named = Py_BuildValue("{s:i,s:K,s:K,s:K,s:K}", "device_id", 0, "size", bytes - 1, "mem_size", bytes,
                                      "mem_ptr", address, "pmem_id", 1ULL);
        object *result = PyObject_Call(hook, none, named);
        if (!result) PyErr_Print();
        Py_DecRef(hook);
        Py_DecRef(named);
        Py_DecRef(result);
    }
    Py_DecRef(values);
    Py_DecRef(hooks);
    Py_DecRef(none);
}

static object *grow(object *self, object *arguments) {
    return PyArg_ParseTuple(arguments, "K", &next) ? PyLong_FromUnsignedLongLong(next) : NULL;
}

static unsigned long long allocate(unsigned long long bytes) {
    tell("malloc_preprocess", bytes, 0);
    unsigned long long address = free_count ? free_blocks[--free_count] : next;
    if (address == next) next += bytes;
    used += bytes;
    tell("malloc_postprocess", bytes, address);
    return address;
}

static object *take(object *self, object *arguments) {
    unsigned long long bytes;
    return PyArg_ParseTuple(arguments, "K", &bytes) ? PyLong_FromUnsignedLongLong(allocate(bytes)) : NULL;
}

// Two blocks by one call, as a kernel's result and a table that it needs.
static object *take_two(object *self, object *arguments) {
    unsigned long long bytes;
    if (!PyArg_ParseTuple(arguments, "K", &bytes)) return NULL;
    unsigned long long first = allocate(bytes);
    // The first result is an object of Python's by then.
    object *result = PyTuple_New(30);
    unsigned long long second = allocate(bytes);
    Py_DecRef(result);
    return Py_BuildValue("KK", first, second);
}

static object *give_back(object *self, object *arguments) {
    unsigned long long address, bytes;
    if (!PyArg_ParseTuple(arguments, "KK", &address, &bytes)) return NULL;
    tell("free_preprocess", bytes, address);
    free_blocks[free_count++] = address;
    used -= bytes;
    tell("free_postprocess", bytes, address);
    return PyLong_FromUnsignedLongLong(used);
}

static object *used_bytes(object *self, object *arguments) { return PyLong_FromUnsignedLongLong(used); }

static method methods[] = {
    {"grow", grow, 1, NULL},
    {"take", take, 1, NULL},
    {"take_two", take_two, 1, NULL},
    {"give_back", give_back, 1, NULL},
    {"used_bytes", used_bytes, 4, NULL},
    {NULL, NULL, 0, NULL},
};
static definition module = {1, NULL, NULL, 0, NULL, "memory", NULL, -1, methods, NULL, NULL, NULL, NULL};

object *PyInit_memory(void) {
    object *hooks = PyImport_ImportModule("cupy.cuda.memory_hook");
    object *given = hooks ? PyObject_GetAttrString(hooks, "__pyx_capi__") : NULL;
    if (!given) return NULL;
    *(void **)&has_hooks = PyCapsule_GetPointer(PyDict_GetItemString(given, "_has_memory_hooks"), has_signature);
    *(void **)&get_hooks = PyCapsule_GetPointer(PyDict_GetItemString(given, "get_memory_hooks"), get_signature);
    return PyModule_Create2(&module, 1013);
}

#else

static definition module = {1, NULL, NULL, 0, NULL, "pinned_memory", NULL, -1, NULL, NULL, NULL, NULL, NULL};

object *PyInit_pinned_memory(void) { return PyModule_Create2(&module, 1013); }

#endif
