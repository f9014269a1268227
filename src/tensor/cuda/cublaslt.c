#define _GNU_SOURCE /* RTLD_NODELETE */
#include "tensor/cuda/cublaslt.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cublasLt.h>

/* Functions of the library, by name. */
#define CUBLASLT_FUNCTIONS(X)                                                                      \
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

/* A factor in the library's view: column-major, `stride` elements from column to column. */
struct factor_side {
    int rows, columns, turned;
    size_t stride;
};

/* The key of a choice. Zeroed before it is filled, since keys are compared as bytes. */
struct product_shape {
    int m, n, k, half, c_half, bias, residual;
    struct factor_side first, second; /* b^T, a^T */
    size_t c_row;
    int align[4]; /* bytes: of first, second, c and d */
};

struct kernel_choice {
    struct product_shape shape;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t first, second, c;
    cublasLtMatmulAlgo_t algo;
    bool none; /* the library has no kernel */
};

struct cublaslt {
#define FIELD(name) __typeof__(&(name)) name;
    CUBLASLT_FUNCTIONS(FIELD)
#undef FIELD
    void *library; /* NULL: no library. The library stays loaded, as loading takes long */
    cublasLtHandle_t handle;
    struct cuda_room workspace;
    struct kernel_choice *made;
    int n, room;
    char about[160];
};

enum { WORKSPACE = 32 << 20 };

static bool load_library(struct cublaslt *lt)
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
    CUBLASLT_FUNCTIONS(FIND)
#undef FIND
    return true;
}

struct cublaslt *cublaslt_open(struct device *dev)
{
    struct cublaslt *lt = calloc(1, sizeof *lt);
    if (!lt)
        return NULL;
    (void)cuda_stream(dev);
    if (cuda_of(dev)->gpu == CUDA_NO_GPU || !load_library(lt) ||
        lt->cublasLtCreate(&lt->handle) != CUBLAS_STATUS_SUCCESS)
        lt->handle = NULL;
    if (lt->handle)
        snprintf(lt->about, sizeof lt->about, "cuBLASLt %zu", lt->cublasLtGetVersion());
    else
        snprintf(lt->about, sizeof lt->about, "no cuBLASLt: slow products");
    return lt;
}

static void free_choice(const struct cublaslt *lt, struct kernel_choice *c)
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

void cublaslt_free_workspace(struct cublaslt *lt, struct device *dev)
{
    if (lt)
        cuda_drop(dev, &lt->workspace);
}

void cublaslt_close(struct cublaslt *lt)
{
    if (!lt)
        return;
    for (int i = 0; i < lt->n; i++)
        free_choice(lt, &lt->made[i]);
    if (lt->handle)
        lt->cublasLtDestroy(lt->handle);
    if (lt->library)
        dlclose(lt->library);
    free(lt->made);
    free(lt);
}

const char *cublaslt_describe(const struct cublaslt *lt)
{
    return lt->about;
}

/* Writes the library's view of a row-major (rows, columns) factor, which is transposed there.
 * Returns false if neither its rows nor its columns are contiguous. */
static bool factor_side_of(const struct factor *f, int rows, int columns, struct factor_side *out)
{
    if (f->column == 1 && f->row >= (size_t)columns)
        *out = (struct factor_side){columns, rows, false, f->row};
    else if (f->row == 1 && f->column >= (size_t)rows)
        *out = (struct factor_side){rows, columns, true, f->column};
    else
        return false;
    return true;
}

/* Returns the largest power of two up to 16 that divides an address and a stride in bytes. */
static int alignment_of(const void *data, size_t stride_bytes)
{
    const size_t bits = (size_t)(uintptr_t)data | stride_bytes | 16;
    return (int)(bits & (~bits + 1));
}

static bool product_shape_of(const struct product *p, struct product_shape *out)
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
    struct factor_side first, second; /* copied by field: the padding stays zero */
    if (!factor_side_of(&p->b, p->k, p->n, &first) || !factor_side_of(&p->a, p->m, p->k, &second))
        return false;
    out->first.rows = first.rows;
    out->first.columns = first.columns;
    out->first.turned = first.turned;
    out->first.stride = first.stride;
    out->second.rows = second.rows;
    out->second.columns = second.columns;
    out->second.turned = second.turned;
    out->second.stride = second.stride;
    out->align[0] = alignment_of(p->b.v.data, first.stride * size);
    out->align[1] = alignment_of(p->a.v.data, second.stride * size);
    const void *c = p->residual.data ? p->residual.data : p->c.data;
    out->c_row = p->c_row ? p->c_row : (size_t)p->n;
    out->align[2] = alignment_of(c, out->c_row * c_size);
    out->align[3] = alignment_of(p->c.data, out->c_row * c_size);
    return true;
}

static bool describe_sides(struct cublaslt *lt, struct kernel_choice *c)
{
    const struct product_shape *s = &c->shape;
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

static bool describe_product(struct cublaslt *lt, struct kernel_choice *c, const struct product *p)
{
    const struct product_shape *s = &c->shape;
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

static uint32_t config_of(const struct cublaslt *lt, const cublasLtMatmulAlgo_t *algo,
                          cublasLtMatmulAlgoConfigAttributes_t what)
{
    uint32_t value = 0;
    size_t written;
    lt->cublasLtMatmulAlgoConfigGetAttribute(algo, what, &value, sizeof value, &written);
    return value;
}

static bool splits_sums(const struct cublaslt *lt, const cublasLtMatmulHeuristicResult_t *found)
{
    return config_of(lt, &found->algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1;
}

/* Returns the index of the kernel to use among the `n` that the library's heuristics name, best
 * first. With many tiles and sums of moderate length the heuristics prefer larger tiles than are
 * fastest (by 5 to 17 % up to k = 2048, on an H200 with 13.1): small tiles are written while
 * others are computed. And if the first kernel splits sums, a kernel that does not, and has work
 * for all multiprocessors, is faster (by 2 to 8 %). */
static int pick_kernel(const struct cublaslt *lt, const struct product_shape *s,
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
                !splits_sums(lt, &found[i]))
                return i;
    for (int i = 0; i < n && s->half && splits_sums(lt, &found[0]); i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS && !splits_sums(lt, &found[i]) &&
            found[i].wavesCount > 0.9f && found[i].wavesCount <= 1)
            return i;
    return 0;
}

/* Chooses the kernel for a shape. The parts of split sums are joined in fp32, in an order that
 * is fixed for a kernel. The join may round before a bias is added, so products with a bias have
 * no split sums. */
static bool choose_kernel(struct cublaslt *lt, struct kernel_choice *c)
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
    c->algo = found[pick_kernel(lt, &c->shape, found, n)].algo;
    return true;
}

/* Returns the choice for a shape, made once; NULL: too little memory. */
static struct kernel_choice *choice_of(struct cublaslt *lt, const struct product_shape *s,
                                       const struct product *p)
{
    for (int i = 0; i < lt->n; i++)
        if (memcmp(&lt->made[i].shape, s, sizeof *s) == 0)
            return &lt->made[i];
    if (lt->n == lt->room) {
        const int room = lt->room ? 2 * lt->room : 64;
        struct kernel_choice *more = realloc(lt->made, (size_t)room * sizeof *more);
        if (!more)
            return NULL;
        lt->made = more;
        lt->room = room;
    }
    struct kernel_choice *c = &lt->made[lt->n++];
    memset(c, 0, sizeof *c);
    memcpy(&c->shape, s, sizeof *s);
    c->none = !describe_sides(lt, c) || !describe_product(lt, c, p) || !choose_kernel(lt, c);
    return c;
}

bool cublaslt_take_workspace(struct cublaslt *lt, struct device *dev)
{
    const bool planned =
        cuda_of(dev)->gpu == CUDA_NO_GPU; /* planned for a machine with the library */
    return (lt->handle || planned) && cuda_grow(dev, &lt->workspace, WORKSPACE);
}

bool cublaslt_product(struct cublaslt *lt, struct device *dev, stream_t stream,
                      const struct product *p)
{
    struct product_shape s;
    const bool types =
        p->a.v.half == p->b.v.half && (p->a.v.half || !p->c.half) &&
        (!p->residual.data || p->residual.half == p->c.half) &&
        (!p->bias.data || (p->bias.half == p->c.half && (uintptr_t)p->bias.data % 16 == 0));
    if (!lt->handle || !types || !product_shape_of(p, &s))
        return false;
    struct kernel_choice *c = choice_of(lt, &s, p);
    if (!c || c->none || !cublaslt_take_workspace(lt, dev))
        return false;
    if (s.bias)
        lt->cublasLtMatmulDescSetAttribute(c->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                           &p->bias.data, sizeof p->bias.data);
    const float one = 1, beta = p->residual.data ? 1 : 0;
    const cublasStatus_t st =
        lt->cublasLtMatmul(lt->handle, c->desc, &one, p->b.v.data, c->first, p->a.v.data, c->second,
                           &beta, p->residual.data ? p->residual.data : p->c.data, c->c, p->c.data,
                           c->c, &c->algo, lt->workspace.data, lt->workspace.bytes, stream);
    if (st == CUBLAS_STATUS_NOT_SUPPORTED) { /* for these addresses, though the heuristics named
                                                this kernel */
        c->none = true;
        return false;
    }
    if (st != CUBLAS_STATUS_SUCCESS)
        device_fail(dev, fail(SOTTO_EIO, "cuBLASLt fails with %d at a product of %d x %d x %d",
                              (int)st, p->m, p->n, p->k));
    return true;
}
