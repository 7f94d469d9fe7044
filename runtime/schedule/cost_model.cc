#include "gemmill/runtime/schedule/cost_model.h"

#include <algorithm>
#include <vector>

#include "gemmill/runtime/cost.h"

namespace gemmill {
double PredictSeconds(const Program& program, const Calibration& calibration) {
  double total = 0;
  double traffic = 0;  // bytes so far
  // What came from outside the micro-batch was last touched in the one before: by then everything else was.
  double whole = 0;
  for (const Value& value : program.values) whole += static_cast<double>(value.spec.bytes());
  std::vector<double> touched(program.values.size(), -whole);
  std::vector<Spec> in, out;
  for (const Step& step : program.steps) {
    if (std::holds_alternative<op::Reshape>(step.op)) continue;
    const Specs inputs = program.InputSpecs(step, in);
    const Specs outputs = program.OutputSpecs(step, out);
    double moving = 0;
    double bytes = 0;
    const auto touch = [&](int number) {
      const double size = static_cast<double>(program.values[static_cast<size_t>(number)].spec.bytes());
      double& last = touched[static_cast<size_t>(number)];
      moving += size / calibration.ByteRate(std::max(traffic - last, 0.0) + size);
      bytes += size;
      last = traffic + bytes;
    };
    for (const int number : step.inputs) touch(number);
    for (const int number : step.outputs) touch(number);
    traffic += bytes;
    double computing = 0;
    for (const GemmShape& gemm : GemmsOf(step.op, inputs, outputs)) {
      const double flops = 2.0 * static_cast<double>(gemm.m * gemm.n * gemm.k * gemm.batch);
      const double rate = flops > 0 ? calibration.GemmRate(gemm, step.origin.role) : 0;
      if (rate > 0) computing += flops / rate;
    }
    total += std::max(computing, moving) + calibration.seconds_per_step;
  }
  return total;
}

}  // namespace gemmill
