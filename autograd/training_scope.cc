#include "gemmill/autograd/training_scope.h"

#include <utility>
#include <vector>

namespace gemmill {
namespace {

thread_local const TrainingScope* innermost = nullptr;

Var Integers(const std::vector<int64_t>& values, const Shape& shape, Device device) {
  absl::StatusOr<Tensor> tensor = Tensor::From(values, shape, device);
  return tensor.ok() ? Var(*std::move(tensor)) : Var::Error(tensor.status());
}

}  // namespace

RandomVars MakeRandomVars(const RandomInputs& random, Device device) {
  return {Integers({static_cast<int64_t>(random.seed), random.step}, {2}, device),
          Integers({random.first_sample}, {}, device), random.samples};
}

TrainingScope::TrainingScope(const RandomInputs& random, Device device)
    : TrainingScope(MakeRandomVars(random, device)) {}
TrainingScope::TrainingScope(RandomVars random) : random_(std::move(random)), before_(innermost) { innermost = this; }
TrainingScope::~TrainingScope() { innermost = before_; }

const RandomVars* TrainingRandom() { return innermost == nullptr ? nullptr : &innermost->random_; }

}  // namespace gemmill
