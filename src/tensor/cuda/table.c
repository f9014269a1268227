/* Opening a GPU, waiting for its ops, and its table. */
#include "tensor/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "tensor/cuda/cublaslt.h"
#include "tensor/cuda/gpus.h"

enum { OLDEST = 8 }; /* compute capability that kernels need (bf16 on matrix units) */

/* Returns the rank of this process on its machine, as set by the launcher; ranks take GPUs in
 * turn. */
static int local_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                        "PMI_LOCAL_RANK", "SLURM_LOCALID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text && *text)
            return atoi(text);
    }
    return 0;
}

static enum sotto_status no_gpu(cudaError_t error)
{
    (void)cudaGetLastError();
    if (error == cudaErrorInsufficientDriver || error == cudaErrorStubLibrary)
        return fail(SOTTO_EINVAL,
                    "no device 'cuda': no driver of NVIDIA's, or one older than CUDA %d.%d "
                    "needs; " GPUS_NONE_HELP,
                    CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    return fail(SOTTO_EINVAL, "no device 'cuda': %s; " GPUS_NONE_HELP,
                error ? cudaGetErrorString(error) : "there is no GPU of NVIDIA's");
}

int gpus_count(void)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return count;
}

bool gpus_describe(int i, char *text, size_t room)
{
    struct cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, i) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    snprintf(text, room, "%s, %.0f GiB, compute capability %d.%d%s", p.name,
             (double)p.totalGlobalMem / (1 << 30), p.major, p.minor,
             p.major < OLDEST ? ", too old" : "");
    return true;
}

bool gpus_usable(void)
{
    int major = 0;
    const int count = gpus_count();
    if (!count || cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                                         local_rank() % count) != cudaSuccess)
        (void)cudaGetLastError();
    return major >= OLDEST;
}

/* Makes a pool keep up to 1 GiB of freed memory for later allocations. */
static cudaError_t keep_memory(cudaMemPool_t pool)
{
    uint64_t bytes = (uint64_t)1 << 30;
    return cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &bytes);
}

static cudaError_t open_stream(struct cuda *c)
{
    cudaError_t e = cudaSetDevice(c->gpu);
    e = e ? e : cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
    e = e ? e : cudaDeviceGetDefaultMemPool(&c->pool, c->gpu);
    e = e ? e : keep_memory(c->pool);
    e = e ? e : cudaHostAlloc((void **)&c->flags, sizeof *c->flags, cudaHostAllocDefault);
    e = e ? e : cudaStreamCreateWithFlags(&c->side.stream, cudaStreamNonBlocking);
    e = e ? e : cudaEventCreateWithFlags(&c->side.ready, cudaEventDisableTiming);
    e = e ? e : cudaEventCreateWithFlags(&c->side.done, cudaEventDisableTiming);
    for (int i = 0; i < 2; i++)
        e = e ? e : cudaEventCreateWithFlags(&c->pinned.copied[i], cudaEventDisableTiming);
    for (int i = 0; i < CUDA_MARKS; i++)
        e = e ? e : cudaEventCreateWithFlags(&c->marks[i], cudaEventDefault);
    return e;
}

static void destroy_context(struct cuda *c)
{
    cublaslt_close(c->cublaslt);
    cuda_pinned_close(&c->pinned);
    for (int i = 0; i < CUDA_MARKS; i++)
        if (c->marks[i])
            (void)cudaEventDestroy(c->marks[i]);
    if (c->flags)
        (void)cudaFreeHost(c->flags);
    if (c->side.ready)
        (void)cudaEventDestroy(c->side.ready);
    if (c->side.done)
        (void)cudaEventDestroy(c->side.done);
    if (c->side.stream)
        (void)cudaStreamDestroy(c->side.stream);
    if (c->stream)
        (void)cudaStreamDestroy(c->stream);
    free(c);
}

/* Gives the context to the context cache, unless an op or the stream has failed. */
static void cuda_close(struct device *dev)
{
    struct cuda *c = cuda_of(dev);
    if (!c)
        return;
    if (c->gpu == CUDA_NO_GPU) {
        cublaslt_close(c->cublaslt);
        free(c);
        return;
    }
    stream_t s = cuda_stream(dev);
    (void)cudaStreamSynchronize(s);
    cublaslt_free_workspace(c->cublaslt, dev);
    cuda_drop(dev, &c->windows);
    cuda_drop(dev, &c->logits);
    cuda_drop(dev, &c->side.parts);
    cuda_pinned_unaccount(dev);
    memory_remove(dev->memory, MEMORY_SCRATCH, sizeof *c->flags);
    dev->impl = NULL;
    if (cudaStreamSynchronize(s) != cudaSuccess || dev->failure.code != SOTTO_OK) {
        (void)cudaGetLastError();
        destroy_context(c);
        return;
    }
    memset(c->flags, 0, sizeof *c->flags);
    context_cache_put(c);
}

/* Makes a new context. */
static enum sotto_status make_context(int gpu, struct cuda **out)
{
    struct cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, gpu) != cudaSuccess)
        return no_gpu(cudaGetLastError());
    if (p.major < OLDEST)
        return fail(
            SOTTO_EINVAL,
            "no device 'cuda': %s has compute capability %d.%d, sotto needs %d.0; " GPUS_NONE_HELP,
            p.name, p.major, p.minor, OLDEST);
    struct cuda *c = calloc(1, sizeof *c);
    if (!c)
        return fail(SOTTO_ENOMEM, "no memory for a device");
    c->gpu = gpu;
    c->number = (int)(hash_bytes(HASH_START, &p.uuid, sizeof p.uuid) >> 33);
    snprintf(c->about, sizeof c->about, "%s", p.name);
    const cudaError_t opened = open_stream(c);
    if (opened == cudaSuccess) {
        memset(c->flags, 0, sizeof *c->flags);
        *out = c;
        return SOTTO_OK;
    }
    (void)cudaGetLastError();
    destroy_context(c);
    return fail(opened == cudaErrorMemoryAllocation ? SOTTO_ENOMEM : SOTTO_EIO,
                "GPU %d (%s) cannot be opened: %s", gpu, p.name, cudaGetErrorString(opened));
}

static enum sotto_status cuda_open(struct device *dev)
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0)
        return no_gpu(error);
    const int gpu = local_rank() % count;
    struct cuda *c = context_cache_take(gpu);
    if (!c)
        TRY(make_context(gpu, &c));
    dev->impl = c;
    memory_add(dev->memory, MEMORY_SCRATCH, sizeof *c->flags);
    return SOTTO_OK;
}

static enum sotto_status cuda_open_absent(struct device *dev)
{
    struct cuda *c = calloc(1, sizeof *c);
    if (!c)
        return fail(SOTTO_ENOMEM, "no memory for a device");
    c->gpu = CUDA_NO_GPU;
    dev->impl = c;
    memory_add(dev->memory, MEMORY_SCRATCH, sizeof *c->flags);
    return SOTTO_OK;
}

static int cuda_number(const struct device *dev)
{
    return cuda_of(dev)->number;
}

static const char *cuda_describe(const struct device *dev)
{
    return cuda_of(dev)->about;
}

/* Also keeps the failure that kernels have reported. */
static void cuda_sync(struct device *dev)
{
    struct cuda_device_flags *flags = cuda_of(dev)->flags;
    cuda_check(dev, cudaStreamSynchronize(cuda_stream(dev)), "finish its ops");
    const uint64_t damaged = flags->damaged;
    if (!damaged)
        return;
    const struct tiles t = {.h = (int)(damaged >> 16 & 0xffff), .w = (int)(damaged & 0xffff)};
    tiles_damaged(dev, &t, (uint32_t)(damaged >> 32));
    flags->damaged = 0;
}

static uint64_t cuda_mark(struct device *dev)
{
    struct cuda *c = cuda_of(dev);
    stream_t s = cuda_stream(dev);
    const uint64_t mark = c->marked++;
    cuda_check(dev, cudaEventRecord(c->marks[mark % CUDA_MARKS], s), "mark");
    return mark;
}

static void cuda_follow(struct device *dev, struct device_mark mark)
{
    const cudaEvent_t event = cuda_of(mark.dev)->marks[mark.at % CUDA_MARKS];
    cuda_check(dev, cudaStreamWaitEvent(cuda_stream(dev), event, 0), "follow");
}

static double cuda_elapsed(struct device *dev, uint64_t begin, uint64_t end)
{
    struct cuda *c = cuda_of(dev);
    const cudaEvent_t last = c->marks[end % CUDA_MARKS];
    float ms = 0;
    cuda_check(dev, cudaEventSynchronize(last), "finish its ops");
    cuda_check(dev, cudaEventElapsedTime(&ms, c->marks[begin % CUDA_MARKS], last), "measure time");
    return ms / 1e3;
}

/* Ops that take scratch; on a device that counts they launch nothing. Pinned pages are host
 * memory and are not counted. */
static const struct ops takes = {
    .linear_forward = cuda_linear_forward,
    .linear_backward_x = cuda_linear_backward_x,
    .linear_backward_w = cuda_linear_backward_w,
    .linear_loss = cuda_linear_loss,
    .gelu_bias_backward = cuda_gelu_bias_backward,
    .layernorm_backward = cuda_layernorm_backward,
    .rmsnorm_backward = cuda_rmsnorm_backward,
    .embedding_backward = cuda_embedding_backward,
    .attention_backward = cuda_attention_backward,
    .conv_forward = cuda_conv_forward,
    .conv_backward_x = cuda_conv_backward_x,
    .conv_backward_w = cuda_conv_backward_w,
    .batchnorm_forward = cuda_batchnorm_forward,
    .batchnorm_backward = cuda_batchnorm_backward,
};

const struct ops ops_cuda = {
    .name = "cuda",
    .place = PLACE_DEVICE,
    .takes = &takes,
    .open = cuda_open,
    .open_absent = cuda_open_absent,
    .close = cuda_close,
    .describe = cuda_describe,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .left = cuda_left,
    .write = cuda_write,
    .read = cuda_read,
    .sync = cuda_sync,
    .mark = cuda_mark,
    .follow = cuda_follow,
    .elapsed = cuda_elapsed,
    .sum_ranks = cuda_sum_ranks,
    .call = cuda_call,
    .number = cuda_number,
    .sum_squares = cuda_sum_squares,
#define OP(op, ...) .op = cuda_##op,
#define OPTIONAL_OP(op, ...)
#include "tensor/op_list.h"
    .linear_loss = cuda_linear_loss,
    .gelu_bias_backward = cuda_gelu_bias_backward,
};
