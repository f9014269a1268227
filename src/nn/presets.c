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
#define RESNET(name)                                                                               \
    {                                                                                              \
        .preset = name, .arch = ARCH_RESNET                                                        \
    }
#define VIT(name, L, C, H)                                                                         \
    {                                                                                              \
        .preset = name, .arch = ARCH_VIT, .layers = L, .width = C, .heads = H                      \
    }

const struct model_preset model_presets[] = {
    {.about = "trains in seconds; vocabulary from the tokenizer",
     .config = {.preset = "nano",
                .arch = ARCH_LLAMA,
                .layers = 4,
                .width = 128,
                .heads = 4,
                .positions = 256,
                .tied = TIED_YES}},
    {.about = "GPT-2 small", .config = {.preset = "gpt2", GPT2(12, 768, 12)}},
    {.about = "GPT-2 medium", .config = {.preset = "gpt2-medium", GPT2(24, 1024, 16)}},
    {.about = "GPT-2 large", .config = {.preset = "gpt2-large", GPT2(36, 1280, 20)}},
    {.about = "the small model of the ACCO paper",
     .config = {.preset = "gpt-neo-36m", NEO(4, 768, 16, 10000, 512)}},
    {.about = "GPT-Neo 125M", .config = {.preset = "gpt-neo-125m", NEO(12, 768, 12, 50257, 2048)}},
    {.about = "GPT-Neo 2.7B", .config = {.preset = "gpt-neo-2.7b", NEO(32, 2560, 20, 50257, 2048)}},
    {.about = "OLMo 2 1B",
     .config = {.preset = "olmo2-1b",
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
    {.about = "the DiLoCo paper's 60M",
     .config = {.preset = "diloco-60m", DILOCO(3, 896, 16, 64, 2368)}},
    {.about = "the DiLoCo paper's 150M",
     .config = {.preset = "diloco-150m", DILOCO(12, 896, 16, 64, 2368)}},
    {.about = "the DiLoCo paper's 400M",
     .config = {.preset = "diloco-400m", DILOCO(12, 1536, 12, 128, 4096)}},
    {.about = "two dense layers over images, with sizes from the data",
     .config = {.preset = "mlp", .arch = ARCH_MLP}},
    {.about = "ResNet-18",
     .config = RESNET("resnet18"),
     .own = "block=basic depths=2,2,2,2 widths=64,128,256,512"},
    {.about = "ResNet-50",
     .config = RESNET("resnet50"),
     .own = "block=bottleneck depths=3,4,6,3 widths=256,512,1024,2048 stem_width=64"},
    {.about = "ResNet-18 for images of about 32 pixels",
     .config = RESNET("resnet18-cifar"),
     .own = "stem=cifar block=basic depths=2,2,2,2 widths=64,128,256,512"},
    {.about = "the same, a quarter as wide",
     .config = RESNET("resnet18-small"),
     .own = "stem=cifar block=basic depths=2,2,2,2 widths=16,32,64,128"},
    {.about = "three groups of one block; trains in minutes",
     .config = RESNET("resnet8"),
     .own = "stem=cifar block=basic depths=1,1,1 widths=16,32,64"},
    {.about = "ViT-B/16", .config = VIT("vit-b/16", 12, 768, 12), .own = "patch=16"},
    {.about = "ViT-S/16", .config = VIT("vit-s/16", 12, 384, 6), .own = "patch=16"},
    {.about = "ViT for images of about 32 pixels",
     .config = VIT("vit-tiny", 6, 192, 3),
     .own = "patch=4"},
};
const int model_presets_count = sizeof model_presets / sizeof *model_presets;
