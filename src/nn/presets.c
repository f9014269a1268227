/* The named models. */
#include "nn/config.h"

#define GPT2(L, C, H)                                                                              \
    .arch = ARCH_GPT2, .layers = L, .width = C, .heads = H, .vocab = 50257, .positions = 1024
#define NEO(L, C, H, V, T)                                                                         \
    .arch = ARCH_GPT_NEO, .layers = L, .width = C, .heads = H, .vocab = V, .positions = T,         \
    .window = 256, .pattern = "gl"
/* The DiLoCo paper gives layers, width, heads x head size and a feed-forward factor of 4; SwiGLU
 * with 8/3 of the width has as many parameters. */
#define DILOCO(L, C, H, D, F)                                                                      \
    .arch = ARCH_LLAMA, .layers = L, .width = C, .heads = H, .head_width = D, .mlp_width = F,      \
    .vocab = 32000, .positions = 1024, .tied = TIED_YES

const struct model_preset model_presets[] = {
    {"trains in seconds; vocabulary from the tokenizer",
     {.preset = "nano",
      .arch = ARCH_LLAMA,
      .layers = 4,
      .width = 128,
      .heads = 4,
      .positions = 256,
      .tied = TIED_YES}},
    {"GPT-2 small", {.preset = "gpt2", GPT2(12, 768, 12)}},
    {"GPT-2 medium", {.preset = "gpt2-medium", GPT2(24, 1024, 16)}},
    {"GPT-2 large", {.preset = "gpt2-large", GPT2(36, 1280, 20)}},
    {"the small model of the ACCO paper", {.preset = "gpt-neo-36m", NEO(4, 768, 16, 10000, 512)}},
    {"GPT-Neo 125M", {.preset = "gpt-neo-125m", NEO(12, 768, 12, 50257, 2048)}},
    {"GPT-Neo 2.7B", {.preset = "gpt-neo-2.7b", NEO(32, 2560, 20, 50257, 2048)}},
    {"OLMo 2 1B",
     {.preset = "olmo2-1b",
      .arch = ARCH_OLMO2,
      .layers = 16,
      .width = 2048,
      .heads = 16,
      .mlp_width = 8192,
      .vocab = 100352,
      .positions = 4096,
      .rope_theta = 500000,
      .norm_eps = 1e-6,
      .tied = TIED_NO}},
    {"the DiLoCo paper's 60M", {.preset = "diloco-60m", DILOCO(3, 896, 16, 64, 2368)}},
    {"the DiLoCo paper's 150M", {.preset = "diloco-150m", DILOCO(12, 896, 16, 64, 2368)}},
    {"the DiLoCo paper's 400M", {.preset = "diloco-400m", DILOCO(12, 1536, 12, 128, 4096)}},
    {"two dense layers over images, whose sizes the data say", {.preset = "mlp", .arch = ARCH_MLP}},
};
const int model_presets_count = sizeof model_presets / sizeof *model_presets;
