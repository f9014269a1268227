#define _GNU_SOURCE /* RTLD_NODELETE */
#include "tensor/cuda/cublaslt.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cublasLt.h>

/* Functions of the library, by their names there. */
#define LT_FUNCTIONS(X)                                                                            \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulAlgoConfigGetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)

/* A factor as the library sees it: columns behind one another. */
struct side {
    int rows, columns, turned;
    size_t stride;
};

/* What a kernel is chosen for. Filled with zeros first: it is compared as bytes. */
struct shape {
    int m, n, k, half, c_half, bias, residual;
    struct side first, second; /* b^T, a^T */
    size_t c_row;
    int align[4]; /* bytes, of first, second, c and d */
};

struct choice_made {
    struct shape shape;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t first, second, c;
    cublasLtMatmulAlgo_t algo;
    bool none; /* the library has no kernel */
};

struct lt {
#define FIELD(name) __typeof__(&(name)) name;
    LT_FUNCTIONS(FIELD)
#undef FIELD
    void *library; /* NULL: without; it stays loaded, as loading it takes long */
    cublasLtHandle_t handle;
    struct cuda_room workspace;
    struct choice_made *made;
    int n, room;
    char about[160];
};

enum { WORKSPACE = 32 << 20 };

static bool load(struct lt *lt)
{
    static const char *const names[] = {
        "libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13",
        "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so.12",
        "libcublasLt.so.11", "libcublasLt.so",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names && !lt->library; i++)
        lt->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!lt->library)
        return false;
#define FIND(name)                                                                                 \
    *(void **)&lt->name = dlsym(lt->library, #name);                                               \
    if (!lt->name)                                                                                 \
        return false;
    LT_FUNCTIONS(FIND)
#undef FIND
    return true;
}

struct lt *lt_open(struct device *dev)
{
    struct lt *lt = calloc(1, sizeof *lt);
    if (!lt)
        return NULL;
    (void)cuda_stream(dev);
    if (cuda_of(dev)->gpu == CUDA_NO_GPU || !load(lt) ||
        lt->cublasLtCreate(&lt->handle) != CUBLAS_STATUS_SUCCESS)
        lt->handle = NULL;
    if (lt->handle)
        snprintf(lt->about, sizeof lt->about, "cuBLASLt %zu", lt->cublasLtGetVersion());
    else
        snprintf(lt->about, sizeof lt->about, "no cuBLASLt: slow products");
    return lt;
}

static void drop(const struct lt *lt, struct choice_made *c)
{
    if (c->desc)
        lt->cublasLtMatmulDescDestroy(c->desc);
    if (c->first)
        lt->cublasLtMatrixLayoutDestroy(c->first);
    if (c->second)
        lt->cublasLtMatrixLayoutDestroy(c->second);
    if (c->c)
        lt->cublasLtMatrixLayoutDestroy(c->c);
}

void lt_rest(struct lt *lt, struct device *dev)
{
    if (lt)
        cuda_drop(dev, &lt->workspace);
}

void lt_close(struct lt *lt)
{
    if (!lt)
        return;
    for (int i = 0; i < lt->n; i++)
        drop(lt, &lt->made[i]);
    if (lt->handle)
        lt->cublasLtDestroy(lt->handle);
    if (lt->library)
        dlclose(lt->library);
    free(lt->made);
    free(lt);
}

const char *lt_describe(const struct lt *lt)
{
    return lt->about;
}

/* A row-major (rows, columns) factor, turned: the library's are column-major. False: neither its
 * rows nor its columns are runs of elements. */
static bool side_of(const struct factor *f, int rows, int columns, struct side *out)
{
    if (f->column == 1 && f->row >= (size_t)columns)
        *out = (struct side){columns, rows, false, f->row};
    else if (f->row == 1 && f->column >= (size_t)rows)
        *out = (struct side){rows, columns, true, f->column};
    else
        return false;
    return true;
}

/* The largest power of two up to 16 that an address and a stride in bytes are multiples of. */
static int alignment(const void *data, size_t stride_bytes)
{
    const size_t bits = (size_t)(uintptr_t)data | stride_bytes | 16;
    return (int)(bits & (~bits + 1));
}

static bool shape_of(const struct product *p, struct shape *out)
{
    memset(out, 0, sizeof *out);
    const size_t size = p->a.v.half ? 2 : 4, c_size = p->c.half ? 2 : 4;
    out->m = p->m;
    out->n = p->n;
    out->k = p->k;
    out->half = p->a.v.half;
    out->c_half = p->c.half;
    out->bias = p->bias.data != NULL;
    out->residual = p->residual.data != NULL;
    struct side first, second; /* copied by field: what is between them is zero */
    if (!side_of(&p->b, p->k, p->n, &first) || !side_of(&p->a, p->m, p->k, &second))
        return false;
    out->first.rows = first.rows;
    out->first.columns = first.columns;
    out->first.turned = first.turned;
    out->first.stride = first.stride;
    out->second.rows = second.rows;
    out->second.columns = second.columns;
    out->second.turned = second.turned;
    out->second.stride = second.stride;
    out->align[0] = alignment(p->b.v.data, first.stride * size);
    out->align[1] = alignment(p->a.v.data, second.stride * size);
    const void *c = p->residual.data ? p->residual.data : p->c.data;
    out->c_row = p->c_row ? p->c_row : (size_t)p->n;
    out->align[2] = alignment(c, out->c_row * c_size);
    out->align[3] = alignment(p->c.data, out->c_row * c_size);
    return true;
}

static bool describe_sides(struct lt *lt, struct choice_made *c)
{
    const struct shape *s = &c->shape;
    const cudaDataType_t type = s->half ? CUDA_R_16BF : CUDA_R_32F;
    const cudaDataType_t c_type = s->c_half ? CUDA_R_16BF : CUDA_R_32F;
    return lt->cublasLtMatrixLayoutCreate(&c->first, type, (uint64_t)s->first.rows,
                                          (uint64_t)s->first.columns,
                                          (int64_t)s->first.stride) == CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatrixLayoutCreate(&c->second, type, (uint64_t)s->second.rows,
                                          (uint64_t)s->second.columns,
                                          (int64_t)s->second.stride) == CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatrixLayoutCreate(&c->c, c_type, (uint64_t)s->n, (uint64_t)s->m,
                                          (int64_t)s->c_row) == CUBLAS_STATUS_SUCCESS;
}

static bool describe_product(struct lt *lt, struct choice_made *c, const struct product *p)
{
    const struct shape *s = &c->shape;
    const cublasOperation_t first = s->first.turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = s->second.turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    if (lt->cublasLtMatmulDescCreate(&c->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) !=
        CUBLAS_STATUS_SUCCESS)
        return false;
    lt->cublasLtMatmulDescSetAttribute(c->desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    lt->cublasLtMatmulDescSetAttribute(c->desc, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                       sizeof second);
    if (s->bias) {
        const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        const cudaDataType_t type = s->c_half ? CUDA_R_16BF : CUDA_R_32F;
        lt->cublasLtMatmulDescSetAttribute(c->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                           sizeof epilogue);
        lt->cublasLtMatmulDescSetAttribute(c->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type,
                                           sizeof type);
        lt->cublasLtMatmulDescSetAttribute(c->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                           &p->bias.data, sizeof p->bias.data);
    }
    return true;
}

static uint32_t config_of(const struct lt *lt, const cublasLtMatmulAlgo_t *algo,
                          cublasLtMatmulAlgoConfigAttributes_t what)
{
    uint32_t value = 0;
    size_t written;
    lt->cublasLtMatmulAlgoConfigGetAttribute(algo, what, &value, sizeof value, &written);
    return value;
}

static bool splits(const struct lt *lt, const cublasLtMatmulHeuristicResult_t *found)
{
    return config_of(lt, &found->algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1;
}

/* Which of the kernels that the library names, the best first. Where there are many tiles and sums
 * are not long it names larger tiles than are fastest (by 5 to 17 % up to k = 2048, on an H200 with
 * 13.1): small ones are written while others are computed. And where one that splits sums comes
 * first, one that does not and has work for all multiprocessors is faster (by 2 to 8 %). */
static int pick(const struct lt *lt, const struct shape *s,
                const cublasLtMatmulHeuristicResult_t *found, int n)
{
    enum { LONG = 4096, MANY = 256 };
    static const uint32_t small[] = {CUBLASLT_MATMUL_TILE_128x128, CUBLASLT_MATMUL_TILE_128x160,
                                     197 /* 168x128 */, 201 /* 176x128, not in old headers */};
    const bool suits = s->half && s->k <= LONG && s->m / 128 * (s->n / 128) >= MANY;
    for (size_t t = 0; t < sizeof small / sizeof *small && suits; t++)
        for (int i = 0; i < n; i++)
            if (found[i].state == CUBLAS_STATUS_SUCCESS &&
                config_of(lt, &found[i].algo, CUBLASLT_ALGO_CONFIG_TILE_ID) == small[t] &&
                !splits(lt, &found[i]))
                return i;
    for (int i = 0; i < n && s->half && splits(lt, &found[0]); i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS && !splits(lt, &found[i]) &&
            found[i].wavesCount > 0.9f && found[i].wavesCount <= 1)
            return i;
    return 0;
}

/* Sums that are split are joined in fp32, in an order that is the kernel's own. Then they may be
 * rounded before a bias is added: with one they are not split. */
static bool choose(struct lt *lt, struct choice_made *c)
{
    static const cublasLtMatmulPreferenceAttributes_t align[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint64_t workspace = WORKSPACE;
    const uint32_t joined =
        c->shape.bias ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasLtMatmulPreference_t preference;
    enum { NAMED = 8 };
    cublasLtMatmulHeuristicResult_t found[NAMED];
    int n = 0;
    if (lt->cublasLtMatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS)
        return false;
    lt->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace, sizeof workspace);
    lt->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                             &joined, sizeof joined);
    for (int i = 0; i < 4; i++) {
        const uint32_t bytes = (uint32_t)c->shape.align[i];
        lt->cublasLtMatmulPreferenceSetAttribute(preference, align[i], &bytes, sizeof bytes);
    }
    const cublasStatus_t st = lt->cublasLtMatmulAlgoGetHeuristic(
        lt->handle, c->desc, c->first, c->second, c->c, c->c, preference, NAMED, found, &n);
    lt->cublasLtMatmulPreferenceDestroy(preference);
    if (st != CUBLAS_STATUS_SUCCESS || n < 1 || found[0].state != CUBLAS_STATUS_SUCCESS)
        return false;
    c->algo = found[pick(lt, &c->shape, found, n)].algo;
    return true;
}

/* The choice for a shape, made once; NULL: no memory. */
static struct choice_made *choice_of(struct lt *lt, const struct shape *s, const struct product *p)
{
    for (int i = 0; i < lt->n; i++)
        if (memcmp(&lt->made[i].shape, s, sizeof *s) == 0)
            return &lt->made[i];
    if (lt->n == lt->room) {
        const int room = lt->room ? 2 * lt->room : 64;
        struct choice_made *more = realloc(lt->made, (size_t)room * sizeof *more);
        if (!more)
            return NULL;
        lt->made = more;
        lt->room = room;
    }
    struct choice_made *c = &lt->made[lt->n++];
    memset(c, 0, sizeof *c);
    memcpy(&c->shape, s, sizeof *s);
    c->none = !describe_sides(lt, c) || !describe_product(lt, c, p) || !choose(lt, c);
    return c;
}

bool lt_take(struct lt *lt, struct device *dev)
{
    const bool planned = cuda_of(dev)->gpu == CUDA_NO_GPU; /* for a machine with the library */
    return (lt->handle || planned) && cuda_grow(dev, &lt->workspace, WORKSPACE);
}

bool lt_product(struct lt *lt, struct device *dev, stream_t stream, const struct product *p)
{
    struct shape s;
    const bool types =
        p->a.v.half == p->b.v.half && (p->a.v.half || !p->c.half) &&
        (!p->residual.data || p->residual.half == p->c.half) &&
        (!p->bias.data || (p->bias.half == p->c.half && (uintptr_t)p->bias.data % 16 == 0));
    if (!lt->handle || !types || !shape_of(p, &s))
        return false;
    struct choice_made *c = choice_of(lt, &s, p);
    if (!c || c->none || !lt_take(lt, dev))
        return false;
    if (s.bias)
        lt->cublasLtMatmulDescSetAttribute(c->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                           &p->bias.data, sizeof p->bias.data);
    const float one = 1, beta = p->residual.data ? 1 : 0;
    const cublasStatus_t st =
        lt->cublasLtMatmul(lt->handle, c->desc, &one, p->b.v.data, c->first, p->a.v.data, c->second,
                           &beta, p->residual.data ? p->residual.data : p->c.data, c->c, p->c.data,
                           c->c, &c->algo, lt->workspace.data, lt->workspace.bytes, stream);
    if (st == CUBLAS_STATUS_NOT_SUPPORTED) { /* of these addresses: its own word was otherwise */
        c->none = true;
        return false;
    }
    if (st != CUBLAS_STATUS_SUCCESS)
        device_fail(dev, fail(SOTTO_EIO, "cuBLASLt fails with %d at a product of %d x %d x %d",
                              (int)st, p->m, p->n, p->k));
    return true;
}
