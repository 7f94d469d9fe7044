#include "gemmill/runtime/schedule/measure.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "gemmill/runtime/execute.h"
#include "gemmill/runtime/status.h"
#include "gemmill/runtime/tensor.h"

namespace gemmill {
namespace {

constexpr double kShortestSample = 2e-4;  // seconds; shorter ops are run several times in a sample
constexpr size_t kFewestSamples = 3;
constexpr size_t kMostSamples = 15;

absl::StatusOr<Tensor> Filled(const Spec& spec, double value) {
  std::vector<Tensor> tensor(1);
  GM_ASSIGN_OR_RETURN(tensor[0], Tensor::Empty(spec));
  const op::Fill fill{spec.shape, spec.dtype, IsFloating(spec.dtype) ? value : 0, spec.device};
  GM_RETURN_IF_ERROR(Execute(fill, {}, absl::MakeSpan(tensor), Stream::Default(spec.device)));
  return tensor[0];
}

}  // namespace

absl::StatusOr<Timing> MeasureOp(const Op& op, Specs inputs, Specs outputs, double seconds) {
  GM_ASSIGN_OR_RETURN(const Kernel kernel, Prepare(op, inputs, outputs));
  const Device device = outputs.empty() ? Device::Cpu() : outputs[0].device;
  std::vector<Tensor> tensors;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const Spec& spec : inputs) {
    GM_ASSIGN_OR_RETURN(Tensor tensor, Filled(spec, 0.5));
    in.push_back(tensor.data());
    tensors.push_back(std::move(tensor));
  }
  for (const Spec& spec : outputs) {
    GM_ASSIGN_OR_RETURN(Tensor tensor, Filled(spec, 0));
    out.push_back(tensor.data());
    tensors.push_back(std::move(tensor));
  }
  GM_ASSIGN_OR_RETURN(const Tensor workspace,
                      Tensor::Empty({{std::max<int64_t>(kernel.workspace_bytes, 1)}, DType::kU8, device}));
  Stream& stream = Stream::Default(device);
  const auto sample = [&](int runs) -> absl::StatusOr<double> {
    const auto start = std::chrono::steady_clock::now();
    for (int run = 0; run < runs; ++run) {
      GM_RETURN_IF_ERROR(RunKernel(kernel, {in, out, workspace.data()}, stream));
    }
    GM_RETURN_IF_ERROR(stream.Synchronize());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / runs;
  };

  GM_RETURN_IF_ERROR(sample(1).status());
  GM_ASSIGN_OR_RETURN(double once, sample(1));
  once = std::max(once, 1e-8);
  const int runs = static_cast<int>(std::max(1.0, kShortestSample / once));
  const double wanted = seconds / (once * runs);
  const size_t count = std::clamp(static_cast<size_t>(std::min(wanted, 1e6)), kFewestSamples, kMostSamples);
  std::vector<double> samples;
  while (samples.size() < count) {
    GM_ASSIGN_OR_RETURN(const double taken, sample(runs));
    samples.push_back(taken);
  }
  std::sort(samples.begin(), samples.end());
  return Timing{samples.front(), samples[samples.size() / 2]};
}

}  // namespace gemmill
