// The loops of Unary and UnaryGrad over a range of elements, for kernels that have them in part.
#pragma once

#include <cstdint>

#include "gemmill/runtime/op.h"

namespace gemmill::cpu {

using UnaryLoop = void (*)(const void* x, int64_t begin, int64_t end, void* y);
UnaryLoop UnaryLoopOf(UnaryFn fn, DType dtype);

using UnaryGradLoop = void (*)(const void* v, const void* dy, int64_t begin, int64_t end, void* dx);
UnaryGradLoop UnaryGradLoopOf(UnaryFn fn, DType dtype);

// Roughly what an element costs, in nanoseconds.
double UnaryCost(UnaryFn fn, DType dtype);

}  // namespace gemmill::cpu
