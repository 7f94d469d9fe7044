#include "gemmill/layers/auxiliary.h"

#include <algorithm>

#include "gemmill/autograd/ops.h"

namespace gemmill {
namespace {

thread_local AuxiliaryScope* innermost = nullptr;

template <typename Sums>
auto Find(Sums& sums, const std::shared_ptr<const StepSum>& sum) {
  return std::find_if(sums.begin(), sums.end(), [&](const auto& pair) { return pair.first == sum; });
}

}  // namespace

AuxiliaryScope::AuxiliaryScope() : AuxiliaryScope({}, Var()) {}
AuxiliaryScope::AuxiliaryScope(Sums global, Var count)
    : global_(std::move(global)), count_(std::move(count)), before_(std::exchange(innermost, this)) {}
AuxiliaryScope::~AuxiliaryScope() { innermost = before_; }
AuxiliaryScope* AuxiliaryScope::Current() { return innermost; }

Var AuxiliaryScope::Add(const std::shared_ptr<const StepSum>& sum, const Var& values) {
  auto found = Find(sums_, sum);
  if (found == sums_.end()) {
    found = sums_.insert(found, {sum, values});
  } else {
    found->second = found->second + values;
  }
  const auto global = Find(global_, sum);
  return global == global_.end() ? found->second : global->second;
}

void AuxiliaryScope::AddLoss(Var sum, Var count) { losses_.emplace_back(std::move(sum), std::move(count)); }

Var AuxiliaryScope::Mean() const {
  Var total;
  for (const Loss& loss : losses_) total = total.node() == nullptr ? loss.Mean() : total + loss.Mean();
  return total.node() == nullptr ? Fill({}, 0) : total;
}

Var AuxiliaryScope::TimesCount(const Var& count) const {
  const Var mean = Mean();
  return mean * Cast(count_.node() == nullptr ? count : count_, mean.dtype());
}

Var AuxiliaryScope::SumOf(const std::shared_ptr<const StepSum>& sum, Device device) const {
  const auto found = Find(sums_, sum);
  return found != sums_.end() ? found->second : Fill({sum->size}, 0, DType::kF64, device);
}

absl::Status AuxiliaryScope::AfterStep() const {
  for (const auto& [sum, var] : sums_) {
    GM_ASSIGN_OR_RETURN(const std::vector<double> values, var.ToVector<double>());
    GM_RETURN_IF_ERROR(sum->after_step(values, /*updated=*/true));
  }
  return absl::OkStatus();
}

}  // namespace gemmill
