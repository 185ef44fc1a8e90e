/* cuDNN: versions, descriptors that remember what was set on them, the graph interface with one engine, and the
 * layout of RNN weights. */

/* Up to cuDNN 8 a minor version has one digit in the version's number. */
#if SIMGPU_MAJOR < 9
enum { CUDNN_MINOR = MINOR % 10, CUDNN_VERSION = SIMGPU_MAJOR * 1000 + CUDNN_MINOR * 100 };
#else
enum { CUDNN_MINOR = MINOR, CUDNN_VERSION = SIMGPU_MAJOR * 10000 + CUDNN_MINOR * 100 };
#endif

SIM(size_t) cudnnGetVersion(void) { return CUDNN_VERSION; }
SIM(size_t) cudnnGetCudartVersion(void) { return (size_t)runtime_version(); }
SIM(int) cudnnGetProperty(int which, int *value) {
    OUT_INT(value, which == 0 ? SIMGPU_MAJOR : which == 1 ? CUDNN_MINOR : 0);
    return 0;
}
SIM(void) cudnnGetLastErrorString(char *message, size_t room) { if (message && room) message[0] = 0; }

/* ---- tensors and filters -------------------------------------------------------------------------------- */

enum { DIMS = 8 };
struct tensor { int type, format, count, dim[DIMS], stride[DIMS]; };

SIM(int) cudnnSetTensorNdDescriptor(struct tensor *t, int type, int count, const int *dim, const int *stride) {
    t->type = type;
    t->count = count < DIMS ? count : DIMS;
    for (int i = 0; i < t->count; i++) { t->dim[i] = dim[i]; t->stride[i] = stride[i]; }
    return 0;
}

SIM(int) cudnnGetTensorNdDescriptor(struct tensor *t, int room, int *type, int *count, int *dim, int *stride) {
    OUT_INT(type, t->type);
    OUT_INT(count, t->count);
    for (int i = 0; i < room && i < DIMS; i++) {
        if (dim) dim[i] = t->dim[i];
        if (stride) stride[i] = t->stride[i];
    }
    return 0;
}

SIM(int) cudnnSetFilterNdDescriptor(struct tensor *t, int type, int format, int count, const int *dim) {
    t->type = type;
    t->format = format;
    t->count = count < DIMS ? count : DIMS;
    for (int i = 0; i < t->count; i++) t->dim[i] = dim[i];
    return 0;
}

SIM(int) cudnnGetFilterNdDescriptor(struct tensor *t, int room, int *type, int *format, int *count, int *dim) {
    OUT_INT(type, t->type);
    OUT_INT(format, t->format);
    OUT_INT(count, t->count);
    for (int i = 0; dim && i < room && i < DIMS; i++) dim[i] = t->dim[i];
    return 0;
}

/* ---- the graph interface -------------------------------------------------------------------------------- */

/* A descriptor is a list of (name, values). */
struct attribute { struct attribute *next; int name; int64_t count; size_t bytes; char values[]; };
struct descriptor { int kind; struct attribute *first; };

/* Attribute types by their width: 8 for handles, 64-bit numbers, doubles and descriptors, 1 for flags and
 * characters, 16 for a fraction, 4 for the rest, which are enumerations and 32-bit numbers. */
static size_t width(int type) {
    switch (type) {
    case 2: case 24: return 1;
    case 0: case 3: case 5: case 6: case 15: return 8;
    case 26: return 16;
    default: return 4;
    }
}

SIM(int) cudnnBackendCreateDescriptor(int kind, struct descriptor **out) {
    *out = calloc(1, sizeof **out);
    (*out)->kind = kind;
    return 0;
}

SIM(int) cudnnBackendInitialize(struct descriptor *d) { return 0; }
SIM(int) cudnnBackendFinalize(struct descriptor *d) { return 0; }
SIM(int) cudnnBackendExecute(void *handle, struct descriptor *plan, struct descriptor *variants) { return 0; }

SIM(int) cudnnBackendDestroyDescriptor(struct descriptor *d) {
    if (!d) return 0;
    for (struct attribute *a = d->first, *next; a; a = next) { next = a->next; free(a); }
    free(d);
    return 0;
}

SIM(int) cudnnBackendSetAttribute(struct descriptor *d, int name, int type, int64_t count, const void *values) {
    size_t bytes = width(type) * (size_t)count;
    struct attribute **at = &d->first;
    while (*at && (*at)->name != name) at = &(*at)->next;
    struct attribute *old = *at, *fresh = malloc(sizeof *fresh + bytes);
    *fresh = (struct attribute){ .next = old ? old->next : NULL, .name = name, .count = count, .bytes = bytes };
    if (bytes) memcpy(fresh->values, values, bytes);
    *at = fresh;
    free(old);
    return 0;
}

/* What the library itself answers, by attribute name. */
enum {
    HEURISTIC_RESULTS = 202,      /* filled into descriptors the caller made */
    CONFIGURATION_ENGINE = 300,
    CONFIGURATION_WORKSPACE = 303,
    PLAN_WORKSPACE = 402,
    GRAPH_ENGINES = 802,
    ENGINE_INDEX = 1301,
};
enum { WORKSPACE = 1 << 20 };     /* so that callers allocate one */

SIM(int) cudnnBackendGetAttribute(const struct descriptor *d, int name, int type, int64_t room, int64_t *count,
                                  void *out) {
    for (struct attribute *a = d->first; a; a = a->next) {
        if (a->name != name) continue;
        size_t bytes = width(type) * (size_t)room;
        if (out) memcpy(out, a->values, bytes < a->bytes ? bytes : a->bytes);
        if (count) *count = a->count;
        return 0;
    }
    int64_t number = -1, found = 1;
    switch (name) {
    case HEURISTIC_RESULTS: case CONFIGURATION_ENGINE: break;
    case CONFIGURATION_WORKSPACE: case PLAN_WORKSPACE: number = WORKSPACE; break;
    case GRAPH_ENGINES: number = 1; break;
    case ENGINE_INDEX: number = 0; break;
    default: found = 0;
    }
    if (number >= 0 && out && room > 0) *(int64_t *)out = number;
    if (count) *count = found;
    return 0;
}

/* ---- RNN ------------------------------------------------------------------------------------------------ */

/* One layer after the other (each direction counts as one): all input matrices, then all recurrent ones; behind the
 * last layer the biases in the same order. */
struct rnn { int gates, directions, element; int64_t biases, input, hidden, recurrent, layers; };

static int width_of(int type) { return type == 1 ? 8 : type == 2 || type == 9 ? 2 : 4; }

static void describe(struct rnn *r, int cell, int direction, int hidden, int layers) {
    r->gates = cell == 2 ? 4 : cell == 3 ? 3 : 1;
    r->directions = direction ? 2 : 1;
    r->hidden = r->recurrent = hidden;
    r->layers = (int64_t)layers * r->directions;
}

SIM(int) cudnnSetRNNDescriptor_v8(struct rnn *r, int algorithm, int cell, int bias, int direction, int input_mode,
                                  int type, int precision, int math, int input, int hidden, int projection,
                                  int layers, void *dropout, unsigned flags) {
    describe(r, cell, direction, hidden, layers);
    r->element = width_of(type);
    r->biases = bias != 0;
    r->input = input;
    r->recurrent = projection > 0 ? projection : hidden;
    return 0;
}

static int64_t columns_in(const struct rnn *r, int64_t layer) {
    return layer < r->directions ? r->input : r->recurrent * r->directions;
}

/* Elements of all matrices before a layer. */
static int64_t matrices_before(const struct rnn *r, int64_t layer) {
    int64_t sum = 0;
    for (int64_t l = 0; l < layer; l++) sum += r->gates * r->hidden * (columns_in(r, l) + r->recurrent);
    return sum;
}

SIM(int) cudnnGetRNNWeightSpaceSize(void *handle, const struct rnn *r, size_t *bytes) {
    int64_t elements = matrices_before(r, r->layers) + r->layers * 2 * r->gates * r->hidden;
    OUT_SIZE(bytes, (size_t)(elements * r->element));
    return 0;
}

static void shape(struct tensor *t, int count, int64_t rows, int64_t columns) {
    if (t) *t = (struct tensor){ .count = count, .dim = { 1, (int)rows, (int)columns }, .stride = { 1, 1, 1 } };
}

SIM(int) cudnnGetRNNWeightParams(void *handle, const struct rnn *r, int layer, size_t bytes, const void *weights,
                                 int matrix, struct tensor *shape_of, void **at, struct tensor *bias_shape,
                                 void **bias_at) {
    int recurrent = matrix >= r->gates;
    int64_t in = columns_in(r, layer), columns = recurrent ? r->recurrent : in;
    int64_t offset = matrices_before(r, layer)
        + (recurrent ? r->gates * r->hidden * in + (matrix - r->gates) * r->hidden * columns
                     : matrix * r->hidden * columns);
    int64_t bias = matrices_before(r, r->layers) + ((int64_t)layer * 2 * r->gates + matrix) * r->hidden;
    shape(shape_of, 3, r->hidden, columns);
    if (at) *at = (char *)weights + offset * r->element;
    shape(bias_shape, r->biases ? 3 : 0, r->hidden, 1);
    if (bias_at) *bias_at = r->biases ? (char *)weights + bias * r->element : NULL;
    return 0;
}

SIM(int) cudnnGetRNNTempSpaceSizes(void *handle, void *r, int mode, void *data, size_t *work, size_t *reserve) {
    OUT_SIZE(work, WORKSPACE);
    OUT_SIZE(reserve, 1 << 16);
    return 0;
}

/* Up to cuDNN 8: the size of the input and the type of the weights come with each call. */
#if SIMGPU_MAJOR < 9
SIM(int) cudnnSetRNNDescriptor_v6(void *handle, struct rnn *r, int hidden, int layers, void *dropout, int input_mode,
                                  int direction, int cell, int algorithm, int precision) {
    describe(r, cell, direction, hidden, layers);
    r->biases = 1;
    return 0;
}

SIM(int) cudnnSetRNNProjectionLayers(void *handle, struct rnn *r, int recurrent, int out) {
    if (recurrent > 0) r->recurrent = recurrent;
    return 0;
}

static const struct rnn *with(struct rnn *r, const struct tensor *input, int type) {
    r->input = input->dim[1];
    r->element = width_of(type);
    return r;
}

SIM(int) cudnnGetRNNParamsSize(void *handle, struct rnn *r, const struct tensor *input, size_t *bytes, int type) {
    return cudnnGetRNNWeightSpaceSize(handle, with(r, input, type), bytes);
}

SIM(int) cudnnGetRNNLinLayerMatrixParams(void *handle, struct rnn *r, int layer, const struct tensor *input,
                                         const struct tensor *all, const void *weights, int matrix,
                                         struct tensor *shape_of, void **at) {
    return cudnnGetRNNWeightParams(handle, with(r, input, all->type), layer, 0, weights, matrix, shape_of, at, NULL, NULL);
}

SIM(int) cudnnGetRNNLinLayerBiasParams(void *handle, struct rnn *r, int layer, const struct tensor *input,
                                       const struct tensor *all, const void *weights, int matrix,
                                       struct tensor *shape_of, void **at) {
    return cudnnGetRNNWeightParams(handle, with(r, input, all->type), layer, 0, weights, matrix, NULL, NULL, shape_of, at);
}

SIM(int) cudnnGetRNNWorkspaceSize(void *handle, void *r, int length, void *inputs, size_t *bytes) {
    OUT_SIZE(bytes, WORKSPACE);
    return 0;
}

SIM(int) cudnnGetRNNTrainingReserveSize(void *handle, void *r, int length, void *inputs, size_t *bytes) {
    OUT_SIZE(bytes, 1 << 16);
    return 0;
}
#endif
