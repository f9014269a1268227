#define _GNU_SOURCE /* syscall */
/* The cpu table: SIMD kernels compiled for several instruction sets, OpenMP threads over them.
 * This file chooses the kernels when a device opens. */
#include "tensor/cpu/cpu.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#define VARIANT_TABLES(label, threads, variant, product, half, attention_product)                  \
    {                                                                                              \
        .name = label, .few = threads, .vector = &fast_vector_##variant,                           \
        .optim = &fast_optim_##variant, .norm = &fast_norm_##variant,                              \
        .activation = &fast_activation_##variant, .loss = &fast_loss_##variant,                    \
        .image = &fast_image_##variant, .attention = &fast_attention_##variant,                    \
        .codec = &fast_codec_##variant, .gemm = &product, .gemm_half = &half,                      \
        .small = &fast_small_##variant, .attend = &attention_product,                              \
    }

/* Kernels by instruction set, best first. `threads` is few_threads. 1: packing the same columns
 * in two threads is faster than waiting for the other thread; 2: waiting is faster, as with a
 * matrix unit. */
static const struct kernels variants[] = {
#if defined(__x86_64__)
    VARIANT_TABLES("amx", 2, v4, gemm_amx, gemm_amx_half, fast_small_v4),
    VARIANT_TABLES("v4", 1, v4, fast_gemm_v4, fast_gemm_v4, fast_small_v4),
    VARIANT_TABLES("v3", 1, v3, fast_gemm_v3, fast_gemm_v3, fast_small_v3),
    VARIANT_TABLES("baseline", 2, baseline, fast_gemm_baseline, fast_gemm_baseline,
                   fast_small_baseline),
#else
#if defined(__aarch64__)
    VARIANT_TABLES("bf16", 2, baseline, fast_gemm_baseline, gemm_bfmmla, fast_gemm_baseline),
#endif
    VARIANT_TABLES("baseline", 2, baseline, fast_gemm_baseline, fast_gemm_baseline,
                   fast_gemm_baseline),
#endif
};
enum { VARIANTS = sizeof variants / sizeof *variants };

#if defined(__x86_64__)
/* True if the processor has the matrix unit and rounds as it does (AVX512_BF16), and the kernel
 * of the system lets this process use its registers. */
static bool machine_has_amx(void)
{
    enum {
        REQUEST = 0x1023 /* ARCH_REQ_XCOMP_PERM */,
        TILE_DATA = 18,
        BF16 = 1 << 22,
        TILE = 1 << 24,
        ROUNDS = 1 << 5 /* AVX512_BF16 */
    };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & BF16) || !(d & TILE))
        return false;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & ROUNDS))
        return false;
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}
#endif

static bool machine_has(const char *variant)
{
#if defined(__x86_64__)
    if (strcmp(variant, "amx") == 0)
        return machine_has("v4") && machine_has_amx();
    if (strcmp(variant, "v4") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    if (strcmp(variant, "v3") == 0)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("bmi2");
#elif defined(__aarch64__)
    enum { FP16 = 1 << 10, BF16 = 1 << 14 };
    if (strcmp(variant, "bf16") == 0)
        return (getauxval(AT_HWCAP) & FP16) && (getauxval(AT_HWCAP2) & BF16);
#endif
    return strcmp(variant, "baseline") == 0;
}

static void cpu_kernels(char names[DEVICE_KERNELS_ROOM])
{
    *names = '\0';
    for (int i = 0; i < VARIANTS; i++) {
        if (machine_has(variants[i].name)) {
            strcat(names, *names ? " " : "");
            strcat(names, variants[i].name);
        }
    }
}

enum sotto_status cpu_select(struct device *dev, const char *variant)
{
    for (int i = 0; i < VARIANTS; i++) {
        if (strcmp(variants[i].name, variant) == 0 && machine_has(variant)) {
            dev->impl = &variants[i];
            return SOTTO_OK;
        }
    }
    char names[DEVICE_KERNELS_ROOM];
    cpu_kernels(names);
    return fail(SOTTO_EINVAL, "no kernels '%s' on this machine, which has %s", variant, names);
}

static enum sotto_status cpu_open(struct device *dev)
{
    for (int i = 0; i < VARIANTS; i++) {
        if (machine_has(variants[i].name))
            return cpu_select(dev, variants[i].name);
    }
    return fail(SOTTO_EINVAL, "no kernels for this machine");
}

static const char *cpu_describe(const struct device *dev)
{
    return kernels_of(dev)->name;
}

/* Ops that take scratch: an op takes all its scratch in one call and returns if there is none. */
static const struct ops takes = {
    .linear_forward = cpu_linear_forward,
    .linear_backward_x = cpu_linear_backward_x,
    .linear_backward_w = cpu_linear_backward_w,
    .linear_backward = cpu_linear_backward,
    .attention_forward = cpu_attention_forward,
    .attention_backward = cpu_attention_backward,
    .conv_forward = cpu_conv_forward,
    .conv_backward_x = cpu_conv_backward_x,
    .conv_backward_w = cpu_conv_backward_w,
};

const struct ops ops_cpu = {
    .name = "cpu",
    .own_caches = true,
    .takes = &takes,
    .open = cpu_open,
    .select = cpu_select,
    .kernels = cpu_kernels,
    .describe = cpu_describe,
    .alloc = host_alloc,
    .release = host_release,
    .write = host_write,
    .read = host_read,
    .sum_squares = cpu_sum_squares,
#define OP(op, ...) .op = cpu_##op,
#define OPTIONAL_OP(op, ...)
#include "tensor/op_list.h"
    .linear_backward = cpu_linear_backward,
};
