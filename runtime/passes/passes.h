// Passes: pure functions from a Program to one that computes the same bits in fewer Steps.
#pragma once

#include "gemmill/runtime/program.h"

namespace gemmill::passes {

// MatMul, then the addition of a bias to each row, then a function of one element: one FusedMatMul.
Program FuseEpilogues(const Program& program);

// The gradient of an activation, then its sum over rows (the bias's gradient): one ActivationBiasGrad.
Program FuseBiasGradients(const Program& program);

// All of them, in the order that serves.
Program Default(const Program& program);

}  // namespace gemmill::passes
