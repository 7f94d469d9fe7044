#include "gemmill/autograd/probe.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gemmill/autograd/custom.h"
#include "gemmill/autograd/ops.h"

namespace gemmill {
namespace {

class ProbeOp : public DifferentiableOp {
 public:
  explicit ProbeOp(std::function<void(const Tensor&)> look) : look_(std::move(look)) {}

  std::string Name() const override { return "Probe"; }
  absl::StatusOr<std::vector<Spec>> Infer(absl::Span<const Spec> inputs) const override {
    if (look_ == nullptr) return InvalidArgument("the function that looks is empty");
    return std::vector<Spec>(inputs.begin(), inputs.end());
  }
  absl::Status Run(absl::Span<const Tensor> inputs, absl::Span<Tensor> outputs, Stream& stream) const override {
    GM_RETURN_IF_ERROR(stream.Synchronize());
    GM_RETURN_IF_ERROR(outputs[0].CopyFrom(inputs[0]));
    look_(inputs[0]);
    return absl::OkStatus();
  }
  std::vector<Var> Vjp(absl::Span<const Var>, absl::Span<const Var>,
                       absl::Span<const Var> output_gradients) const override {
    return {output_gradients[0]};
  }

 private:
  std::function<void(const Tensor&)> look_;
};

}  // namespace

std::string RangeString(const Tensor& tensor) {
  const auto values = tensor.ToDoubles();
  if (!values.ok()) return std::string(values.status().message());
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  int64_t bad = 0;
  for (double value : *values) {
    if (!std::isfinite(value)) {
      ++bad;
    } else {
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  const std::string range = least <= most ? absl::StrFormat("[%g, %g]", least, most) : "no finite value";
  return bad == 0 ? range : absl::StrCat(range, " and ", bad, " not finite");
}

Var Probe(Located x, std::function<void(const Tensor&)> look) {
  return ApplyCustom(std::make_shared<ProbeOp>(std::move(look)), {x.var}, x.caller)[0];
}

Var Probe(Located x, absl::string_view name) {
  return Probe(std::move(x), [name = std::string(name)](const Tensor& value) {
    absl::FPrintF(stderr, "%s: %s in %s\n", name, value.spec().ToString(), RangeString(value));
  });
}

}  // namespace gemmill
