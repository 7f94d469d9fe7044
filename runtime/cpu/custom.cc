// Custom: a user's own op sees its arguments as Tensors.
#include <utility>
#include <vector>

#include "gemmill/runtime/cpu/prepare.h"
#include "gemmill/runtime/status.h"
#include "gemmill/runtime/tensor.h"

namespace gemmill::cpu {

absl::StatusOr<Kernel> Prepare(const op::Custom& op, Specs in, Specs out) {
  return Kernel{[custom = op.custom, in = std::vector<Spec>(in.begin(), in.end()),
                 out = std::vector<Spec>(out.begin(), out.end())](const KernelArguments& arguments, Stream& stream) {
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
    for (size_t i = 0; i < in.size(); ++i) {
      inputs.push_back(Tensor::View(const_cast<void*>(arguments.inputs[i]), in[i]));
    }
    for (size_t i = 0; i < out.size(); ++i) outputs.push_back(Tensor::View(arguments.outputs[i], out[i]));
    return Annotate(custom->Run(inputs, absl::MakeSpan(outputs), stream), custom->Name(), ": ");
  }};
}

}  // namespace gemmill::cpu
