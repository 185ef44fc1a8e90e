/* A plugin of XLA's interface (PJRT, pjrt_c_api.h) that computes nothing. Its buffers are pieces of one allocation of
   the driver's, or of pinned host memory. Written after the public documentation; structures are words.
   PLUGIN_FUNCTIONS: how many functions its table has; 132 by default. */
#define BY_DLSYM
#include "driver_api.h"
#include "pjrt.h"

struct error { int code; char text[96]; };
struct memory { const char *kind; };
struct device { struct memory own, host; int number; };
struct buffer { word bytes, address; struct device *device; struct memory *memory; int deleted; };
struct executable { word outputs, bytes, donated; };

static struct device devices[2] = {{.number = 0}, {.number = 1}};
static const char kind[] = "Stand-in";
static CUdeviceptr pool;
static word used;

static void *fail(int code, const char *text) {
    struct error *error = calloc(1, sizeof *error);
    error->code = code;
    strcpy(error->text, text);
    return error;
}

static void take_pool(void) {
    CUcontext context;
    reach_driver();
    MUST(cu(Init)(0));
    MUST(cu(PrimaryRetain)(&context, 0));
    MUST(cu(CtxSetCurrent)(context));
    MUST(cu(MemAlloc)(&pool, 64 << 20));
}

static struct buffer *make(word bytes, word device, word memory) {
    if (!pool) take_pool();
    struct buffer *buffer = calloc(1, sizeof *buffer);
    buffer->device = device ? (struct device *)device : &devices[0];
    buffer->memory = memory ? (struct memory *)memory : &buffer->device->own;
    buffer->bytes = bytes, buffer->address = pool + used;
    used += (bytes + 255) & ~255ul;
    return buffer;
}

static void *nothing(word *a) { (void)a; return fail(12, "unimplemented"); }
static void *error_destroy(word *a) { free((void *)a[2]); return 0; }
static void *error_message(word *a) {
    a[3] = (word)((struct error *)a[2])->text, a[4] = strlen((char *)a[3]);
    return 0;
}
static void *error_code(word *a) { *(int *)&a[3] = ((struct error *)a[2])->code; return 0; }
static void *compile(word *a) {
    /* What it gives is said by its options: outputs, bytes of each, which of its arguments are donated. */
    const word *options = (const word *)a[4];
    struct executable *made = calloc(1, sizeof *made);
    made->outputs = options[0], made->bytes = options[1], made->donated = options[2];
    a[6] = (word)made;
    return 0;
}
static void *from_host(word *a) {
    word bytes = 4;
    for (word i = 0; i < a[6]; i++) bytes *= ((word *)a[5])[i];
    if (bytes > 64 << 20) return fail(8, "Out of memory while trying to allocate 1099511627776 bytes.");
    a[14] = (word)make(bytes, a[10], a[11]);
    return 0;
}
static void *description(word *a) { a[3] = a[2]; return 0; }
static void *description_id(word *a) { *(int *)&a[3] = ((struct device *)a[2])->number; return 0; }
static void *description_kind(word *a) { a[3] = (word)kind, a[4] = sizeof kind - 1; return 0; }
static void *hardware_id(word *a) { *(int *)&a[3] = -1; return 0; }
static void *default_memory(word *a) { a[3] = (word)&((struct device *)a[2])->own; return 0; }
static void *destroy(word *a) { free((void *)a[2]); return 0; }
static void *same(word *a) {
    a[3] = (word)malloc(sizeof(struct executable));
    memcpy((void *)a[3], (void *)a[2], sizeof(struct executable));
    return 0;
}
static void *code_bytes(word *a) { a[3] = 1000 * ((struct executable *)a[2])->outputs; return 0; }
static void *devices_of(word *a) {
    static struct device *all[] = {&devices[1], &devices[0]};
    a[3] = (word)all, a[4] = 2;
    return 0;
}
static void *unload(word *a) { (void)a; return 0; }
static void *outputs(word *a) { a[3] = ((struct executable *)a[2])->outputs; return 0; }
static void *execute(word *a) {
    struct executable *executable = (struct executable *)a[2];
    if (executable->bytes > 64 << 20) return fail(8, "Failed to allocate request for 1.00TiB (1099511627776B) on device ordinal 1");
    for (word d = 0; d < a[5]; d++) {
        for (word i = 0; i < a[6]; i++)
            if (executable->donated >> i & 1) ((struct buffer **)((word *)a[4])[d])[i]->deleted = 1;
        for (word o = 0; o < executable->outputs; o++)
            ((word *)((word *)a[7])[d])[o] = (word)make(executable->bytes, (word)&devices[d], 0);
    }
    return 0;
}
static void *bytes(word *a) { a[3] = ((struct buffer *)a[2])->bytes; return 0; }
static void *device_of(word *a) { a[3] = (word)((struct buffer *)a[2])->device; return 0; }
static void *memory_of(word *a) { a[3] = (word)((struct buffer *)a[2])->memory; return 0; }
static void *delete(word *a) { ((struct buffer *)a[2])->deleted = 1; return 0; }
static void *is_deleted(word *a) { *(char *)&a[3] = (char)((struct buffer *)a[2])->deleted; return 0; }
static void *copy_to_device(word *a) { a[4] = (word)make(((struct buffer *)a[2])->bytes, a[3], 0); return 0; }
static void *copy_to_memory(word *a) {
    struct buffer *from = (struct buffer *)a[2];
    a[4] = (word)make(from->bytes, (word)from->device, a[3]);
    return 0;
}
static void *address(word *a) { a[3] = ((struct buffer *)a[2])->address; return 0; }
static void *view(word *a) {
    struct buffer *view = make(4, a[8], 0);
    view->address = a[3];
    a[12] = (word)view;
    return 0;
}
static void *retrieve(word *a) { a[4] = (word)make(1024, 0, 0); return 0; }
static void *uninitialized(word *a) { a[9] = (word)make(2048, a[7], a[8]); return 0; }
static void *donate(word *a) {
    struct buffer *from = (struct buffer *)a[2], *to = make(from->bytes, (word)from->device, 0);
    to->address = from->address, from->deleted = 1;
    a[5] = (word)to;
    return 0;
}
static void *bitcast(word *a) {
    a[5] = 0;
    struct buffer *from = (struct buffer *)a[2], *to = make(from->bytes, (word)from->device, 0);
    to->address = from->address, from->deleted = 1;
    a[7] = (word)to;
    return 0;
}

static word table[HEAD + FUNCTIONS];

const void *GetPjrtApi(void) {
    const char *asked = getenv("PLUGIN_FUNCTIONS");
    word count = asked ? strtoul(asked, 0, 10) : FUNCTIONS;
    table[0] = 8 * (HEAD + count), table[2] = 24, table[4] = (word)81 << 32;
    for (word i = 0; i < FUNCTIONS; i++) table[HEAD + i] = i < count ? (word)nothing : 0xdead;
    static const struct { word slot; void *(*function)(word *); } known[] = {
        {0, error_destroy}, {1, error_message}, {2, error_code}, {20, compile}, {22, from_host}, {23, description_id},
        {26, description_kind}, {29, description}, {31, hardware_id}, {33, default_memory}, {40, destroy}, {44, outputs},
        {45, code_bytes}, {50, destroy}, {51, same}, {52, devices_of}, {53, unload}, {55, execute}, {58, destroy}, {64, bytes}, {65, device_of}, {66, memory_of},
        {67, delete}, {68, is_deleted}, {69, copy_to_device}, {73, address}, {92, copy_to_memory}, {93, view},
        {104, retrieve}, {112, uninitialized}, {125, donate}, {131, bitcast}};
    for (word i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].slot < count) table[HEAD + known[i].slot] = (word)known[i].function;
    return table;
}

/* The second device, and the host's memory of the first, for whoever makes buffers there. */
void *plugin_device(void) { return &devices[1]; }
void *plugin_host_memory(void) { return &devices[0].host; }
