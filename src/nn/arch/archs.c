/* The table of the architectures, by enum model_arch. */
#include "nn/arch/arch.h"

#define ADDRESS(id, name) [ARCH_##id] = &arch_##name,
const struct arch *const archs[] = {ARCHS(ADDRESS)};
