// Custom: a user's own op sees its arguments as Tensors.
#include <atomic>
#include <memory>
#include <vector>

#include "gemmill/runtime/cpu/prepare.h"
#include "gemmill/runtime/status.h"
#include "gemmill/runtime/tensor.h"

namespace gemmill::cpu {
namespace {

class Views {
 public:
  explicit Views(Specs specs) : specs_(specs.begin(), specs.end()), tensors_(specs.size()) {}

  // A recorded step finds its bytes where they were: only what has moved is made anew.
  template <typename Address>
  absl::Span<Tensor> At(absl::Span<Address* const> addresses) {
    for (size_t i = 0; i < specs_.size(); ++i) {
      void* const data = const_cast<void*>(static_cast<const void*>(addresses[i]));
      if (!tensors_[i].valid() || tensors_[i].data() != data) tensors_[i] = Tensor::View(data, specs_[i]);
    }
    return absl::MakeSpan(tensors_);
  }

 private:
  std::vector<Spec> specs_;
  std::vector<Tensor> tensors_;
};

class CustomKernel {
 public:
  CustomKernel(const op::Custom& op, Specs in, Specs out) : custom_(op.custom), inputs_(in), outputs_(out) {}

  // Several threads may run it at once, and the op may run it from within: the first has the tensors that are kept.
  absl::Status Run(const KernelArguments& arguments, Stream& stream) {
    if (taken_.test_and_set()) {
      Views inputs = fresh_inputs_;
      Views outputs = fresh_outputs_;
      return Run(arguments, stream, inputs, outputs);
    }
    absl::Status done = Run(arguments, stream, inputs_, outputs_);
    taken_.clear();
    return done;
  }

 private:
  absl::Status Run(const KernelArguments& arguments, Stream& stream, Views& inputs, Views& outputs) const {
    const absl::Status done = CatchExceptions(
        [&] { return custom_->Run(inputs.At(arguments.inputs), outputs.At(arguments.outputs), stream); });
    return done.ok() ? done : Annotate(done, custom_->Name(), ": ");
  }

  std::shared_ptr<const CustomOp> custom_;
  Views inputs_;
  Views outputs_;
  const Views fresh_inputs_ = inputs_;
  const Views fresh_outputs_ = outputs_;
  std::atomic_flag taken_;
};

}  // namespace

absl::StatusOr<Kernel> Prepare(const op::Custom& op, Specs in, Specs out) {
  const auto kernel = std::make_shared<CustomKernel>(op, in, out);
  return Kernel{[kernel](const KernelArguments& arguments, Stream& stream) { return kernel->Run(arguments, stream); }};
}

}  // namespace gemmill::cpu
