// What a device can do, beyond being named (spec.h).
#pragma once

#include "gemmill/runtime/spec.h"

namespace gemmill {

// Whether GEMMs of bf16 are faster there than those of f32: on a CPU with AVX512_BF16, and on GPUs.
bool HasFastBf16(Device device);

}  // namespace gemmill
