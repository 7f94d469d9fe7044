#include "gemmill/runtime/execute.h"

#include <utility>

#include "gemmill/runtime/cpu/denormals.h"
#include "gemmill/runtime/cpu/prepare.h"
#include "gemmill/runtime/infer.h"
#include "gemmill/runtime/status.h"

#ifdef GEMMILL_WITH_CUDA
#include "gemmill/runtime/cuda/prepare.h"
#endif

namespace gemmill {

absl::StatusOr<Kernel> Prepare(const Op& op, Specs inputs, Specs outputs) {
  const Device device = !outputs.empty() ? outputs[0].device : !inputs.empty() ? inputs[0].device : Device::Cpu();
  if (device.kind == Device::Kind::kCpu) {
    return std::visit([&](const auto& typed) { return cpu::Prepare(typed, inputs, outputs); }, op);
  }
#ifdef GEMMILL_WITH_CUDA
  return cuda::PrepareOp(op, inputs, outputs);
#else
  return absl::UnimplementedError(absl::StrCat(OpName(op), ": this build has no backend for ", device.ToString()));
#endif
}

absl::Status RunKernel(const Kernel& kernel, const KernelArguments& arguments, Stream& stream) {
  const cpu::FlushDenormals flush;
  return kernel.run(arguments, stream);
}

absl::Status Execute(const Op& op, absl::Span<const Tensor> inputs, absl::Span<Tensor> outputs, Stream& stream) {
  absl::InlinedVector<Spec, 4> input_specs;
  absl::InlinedVector<Spec, 4> output_specs;
  absl::InlinedVector<const void*, 8> input_data;
  absl::InlinedVector<void*, 8> output_data;
  for (const Tensor& tensor : inputs) {
    input_specs.push_back(tensor.spec());
    input_data.push_back(tensor.data());
  }
  for (const Tensor& tensor : outputs) {
    output_specs.push_back(tensor.spec());
    output_data.push_back(tensor.data());
  }
  GM_ASSIGN_OR_RETURN(const Kernel kernel, Prepare(op, input_specs, output_specs));
  std::shared_ptr<Buffer> workspace;
  if (kernel.workspace_bytes > 0) {
    GM_ASSIGN_OR_RETURN(workspace, Buffer::Allocate(kernel.workspace_bytes, stream.device()));
  }
  return RunKernel(kernel, {input_data, output_data, workspace == nullptr ? nullptr : workspace->data()}, stream);
}

absl::StatusOr<std::vector<Tensor>> Execute(const Op& op, absl::Span<const Tensor> inputs, Stream& stream) {
  absl::InlinedVector<Spec, 4> specs;
  for (const Tensor& tensor : inputs) specs.push_back(tensor.spec());
  GM_ASSIGN_OR_RETURN(const std::vector<Spec> inferred, Infer(op, specs));
  std::vector<Tensor> outputs;
  for (const Spec& spec : inferred) {
    GM_ASSIGN_OR_RETURN(Tensor output, Tensor::Empty(spec));
    outputs.push_back(std::move(output));
  }
  GM_RETURN_IF_ERROR(Execute(op, inputs, absl::MakeSpan(outputs), stream));
  return outputs;
}

bool MayRunInPlace(const Op& op, size_t i, size_t o) {
  // Elementwise ops read each element before they write it; a broadcast input is read more than once, but then its spec
  // is not the output's. Optimizer updates are made for it: outputs stand in the order of the state inputs.
  if (std::holds_alternative<op::Unary>(op) || std::holds_alternative<op::UnaryGrad>(op) ||
      std::holds_alternative<op::Binary>(op) || std::holds_alternative<op::Where>(op) ||
      std::holds_alternative<op::Reshape>(op) || std::holds_alternative<op::ActivationBiasGrad>(op)) {
    return o == 0;
  }
  if (std::holds_alternative<op::Dropout>(op) || std::holds_alternative<op::GatedUnaryGrad>(op)) {
    return i == 0 && o == 0;
  }
  const auto updates = [&](const auto& update) {
    const size_t count = update.weight_decay.size();
    return i == 1 + o + (o < count ? 0 : count);
  };
  if (const auto* sgd = std::get_if<op::Sgd>(&op)) return updates(*sgd);
  if (const auto* adamw = std::get_if<op::AdamW>(&op)) return updates(*adamw);
  return false;
}

}  // namespace gemmill
