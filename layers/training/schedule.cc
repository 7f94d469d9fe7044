#include "gemmill/layers/training/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "gemmill/runtime/status.h"

namespace gemmill {

Schedule Schedule::WarmupCosine(int64_t warmup_steps, int64_t total_steps, double final_factor) {
  Schedule schedule;
  schedule.kind_ = Kind::kWarmupCosine;
  schedule.warmup_steps_ = warmup_steps;
  schedule.total_steps_ = total_steps;
  schedule.factor_ = final_factor;
  return schedule;
}

Schedule Schedule::Step(int64_t every, double factor) {
  Schedule schedule;
  schedule.kind_ = Kind::kStep;
  schedule.every_ = every;
  schedule.factor_ = factor;
  return schedule;
}

Schedule Schedule::StartingAt(int64_t first) const {
  Schedule schedule = *this;
  schedule.first_ = first;
  return schedule;
}

double Schedule::Factor(int64_t step) const {
  step = std::max<int64_t>(0, step - first_);
  switch (kind_) {
    case Kind::kConstant:
      return 1;
    case Kind::kWarmupCosine: {
      if (step < warmup_steps_) return static_cast<double>(step + 1) / static_cast<double>(warmup_steps_);
      const int64_t span = total_steps_ - warmup_steps_;
      const double progress =
          span <= 0 ? 1 : std::min(1.0, static_cast<double>(step - warmup_steps_) / static_cast<double>(span));
      return factor_ + (1 - factor_) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
    }
    case Kind::kStep: {
      const int64_t times = step / every_;
      return std::pow(factor_, static_cast<double>(times));
    }
  }
  return 1;
}

absl::Status Schedule::Check() const {
  if (kind_ == Kind::kWarmupCosine && (warmup_steps_ < 0 || total_steps_ < 1 || warmup_steps_ > total_steps_)) {
    return InvalidArgument("schedule: ", warmup_steps_, " warm-up steps of ", total_steps_,
                           ", expected 0 <= warm-up steps <= total steps");
  }
  if (kind_ == Kind::kStep && every_ < 1)
    return InvalidArgument("schedule: a step every ", every_, ", expected 1 or more");
  if (!(factor_ >= 0 && std::isfinite(factor_))) {
    return InvalidArgument("schedule: factor ", factor_, ", expected a finite number of 0 or more");
  }
  return absl::OkStatus();
}

}  // namespace gemmill
