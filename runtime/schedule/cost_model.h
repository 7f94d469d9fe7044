// How long a Program takes, from its specs and a calibration.
#pragma once

#include "gemmill/runtime/program.h"
#include "gemmill/runtime/schedule/calibration.h"

namespace gemmill {

// Each Step takes what its arithmetic takes or what its bytes take, whichever is longer, and a little by itself. The
// arithmetic of a GEMM goes at the rate measured for its role and samples. Bytes come at the rate of the cache that
// still holds them: of a value that was touched a while ago, the one as large as the traffic since.
double PredictSeconds(const Program& program, const Calibration& calibration);

}  // namespace gemmill
