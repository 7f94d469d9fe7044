// What Trainer's ranks do together: agree that all can go on, and add up what each has of a global batch.
#include <cstring>
#include <utility>

#include "gemmill/layers/training/trainer.h"
#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

absl::Status SumOverRanks(Communicator& communicator, const Tensor& tensor) {
  if (tensor.device() != Device::Cpu()) {
    return absl::UnimplementedError(absl::StrCat("ranks on ", tensor.device().ToString(), "; use cpu"));
  }
  const size_t count = static_cast<size_t>(tensor.num_elements());
  if (tensor.dtype() == DType::kF64) {
    return communicator.AllReduce(absl::MakeSpan(static_cast<double*>(tensor.data()), count), ReduceOp::kSum);
  }
  if (tensor.dtype() == DType::kF32) {
    return communicator.AllReduce(absl::MakeSpan(static_cast<float*>(tensor.data()), count), ReduceOp::kSum);
  }
  return absl::InternalError(absl::StrCat("totals of ", DTypeName(tensor.dtype())));
}

}  // namespace

int64_t Trainer::MostSamples() const {
  const int64_t world = options_.communicator != nullptr ? options_.communicator->world() : 1;
  return options_.global_batch / world + (options_.global_batch % world > 0 ? 1 : 0);
}

absl::Status Trainer::AgreeIfRanks(const absl::Status& mine) const {
  return options_.communicator != nullptr ? Agree(*options_.communicator, mine) : mine;
}

absl::Status Trainer::ReduceTotals(std::vector<Var>& totals) {
  if (options_.communicator == nullptr) return absl::OkStatus();
  for (Var& total : totals) {
    GM_ASSIGN_OR_RETURN(Tensor sum, total.Value());
    if (!Replays()) {  // what an eager op made may be somebody else's value too
      GM_ASSIGN_OR_RETURN(const Tensor own, Tensor::Empty(sum.spec()));
      std::memcpy(own.data(), sum.data(), static_cast<size_t>(sum.spec().bytes()));
      sum = own;
      total = Var(own);
    }
    GM_RETURN_IF_ERROR(SumOverRanks(*options_.communicator, sum));
  }
  return absl::OkStatus();
}

// Of a rank without samples.
absl::Status Trainer::Clear(Pass pass) {
  std::vector<Tensor> tensors = pass.counting ? global_tensors_ : total_tensors_;
  if (!Replays()) {
    tensors.clear();
    for (const Spec& spec : pass.counting ? GlobalSpecs(trained_) : TotalSpecs(trained_)) {
      GM_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Zeros(spec));
      tensors.push_back(std::move(tensor));
    }
  }
  for (const Tensor& tensor : tensors) {
    std::memset(tensor.data(), 0, static_cast<size_t>(tensor.spec().bytes()));
  }
  (pass.counting ? global_ : totals_) = std::vector<Var>(tensors.begin(), tensors.end());
  return absl::OkStatus();
}

}  // namespace gemmill
