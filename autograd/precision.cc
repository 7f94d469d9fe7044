#include "gemmill/autograd/precision.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "gemmill/autograd/context.h"
#include "gemmill/runtime/execute.h"

namespace gemmill {
namespace {

thread_local PrecisionScope* innermost = nullptr;

bool IsF32(const Var& x) { return x.dtype() == DType::kF32; }
bool IsBf16(const Var& x) { return x.dtype() == DType::kBf16; }

}  // namespace

const char* PrecisionName(Precision precision) { return precision == Precision::kBf16 ? "bf16" : "f32"; }

absl::StatusOr<Precision> ParsePrecision(absl::string_view name) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    if (name == PrecisionName(precision)) return precision;
  }
  return InvalidArgument("no precision \"", name, "\", expected f32 or bf16");
}

absl::StatusOr<std::unique_ptr<Bf16Copies::Copy>> Bf16Copies::Make(const Var& parameter) {
  auto copy = std::make_unique<Copy>();
  copy->parameter = parameter;
  GM_ASSIGN_OR_RETURN(const Tensor from, parameter.Value());
  const Spec spec{from.shape(), DType::kBf16, from.device()};
  GM_ASSIGN_OR_RETURN(copy->value, Tensor::Empty(spec));
  const Op cast = op::Cast{DType::kBf16};
  GM_ASSIGN_OR_RETURN(copy->kernel, Prepare(cast, {&from.spec(), 1}, {&spec, 1}));
  copy->program.values = {{from.spec(), Storage::kBound, from}, {spec, Storage::kBound, copy->value}};
  copy->program.steps = {Step{cast, {0}, {1}, {CurrentLayer(), CurrentRole(), CurrentCaller({})}}};
  GM_RETURN_IF_ERROR(Convert(*copy));
  return copy;
}

absl::Status Bf16Copies::Convert(Copy& copy) {
  GM_ASSIGN_OR_RETURN(const Tensor from, copy.parameter.Value());
  const void* const input = from.data();
  void* const output = copy.value.data();
  copy.version = from.buffer()->version();
  copy.value.buffer()->MarkWritten();
  return RunKernel(copy.kernel, {{&input, 1}, {&output, 1}, nullptr}, Stream::Default(from.device()));
}

Var Bf16Copies::Of(const Var& parameter) {
  auto found =
      std::find_if(copies_.begin(), copies_.end(), [&](const auto& copy) { return copy->parameter.Is(parameter); });
  if (found == copies_.end()) {
    absl::StatusOr<std::unique_ptr<Copy>> made = Make(parameter);
    if (!made.ok()) return Var::Error(Annotate(made.status(), "the bf16 copy of a parameter: "));
    found = copies_.insert(copies_.end(), *std::move(made));
  }
  const Copy& copy = **found;
  auto node = std::make_shared<Node>();
  node->specs = {copy.value.spec()};
  node->values = {copy.value};
  node->origin = copy.program.steps[0].origin;
  if (parameter.requires_grad() && GradEnabled()) {
    node->requires_grad = true;
    node->op = op::Cast{DType::kBf16};
    node->inputs = {parameter};
  }
  return Var(std::move(node), 0);
}

absl::Status Bf16Copies::Refresh(const Replay::Watch& watch) {
  for (const auto& copy : copies_) {
    GM_ASSIGN_OR_RETURN(const Tensor from, copy->parameter.Value());
    // One that is trained can have been written by any means.
    if (!copy->parameter.requires_grad() && from.buffer()->version() == copy->version) continue;
    const auto before = std::chrono::steady_clock::now();
    GM_RETURN_IF_ERROR(Convert(*copy));
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - before;
    if (watch) watch(copy->program, 0, taken.count());
  }
  return absl::OkStatus();
}

PrecisionScope::PrecisionScope(Precision precision, std::shared_ptr<Bf16Copies> copies)
    : precision_(precision), copies_(std::move(copies)), before_(std::exchange(innermost, this)) {}
PrecisionScope::~PrecisionScope() { innermost = before_; }
Precision CurrentPrecision() { return innermost == nullptr ? Precision::kF32 : innermost->precision_; }

// What each op does with operands of bf16 and f32 inside a scope of bf16.
class PrecisionRules {
 public:
  PrecisionRules(std::vector<Var>& inputs, Caller caller) : inputs_(inputs), caller_(caller) {}

  void operator()(const op::MatMul&) const { Narrow(0, 2); }
  void operator()(const op::GroupedMatMul&) const { Narrow(0, 2); }
  void operator()(const op::DispatchRows&) const { Narrow(0, 1); }
  // A parameter that is only moved stays what a GEMM, or a row of bf16, will want.
  void operator()(const op::Reshape&) const { NarrowParameter(0); }
  void operator()(const op::Permute&) const { NarrowParameter(0); }
  void operator()(const op::Slice&) const { NarrowParameter(0); }
  void operator()(const op::BroadcastTo&) const { NarrowParameter(0); }
  void operator()(const op::GatherRows&) const { NarrowParameter(0); }
  void operator()(const op::Concat&) const { Agree(0); }
  void operator()(const op::Where&) const { Agree(1); }
  void operator()(const op::Binary& op) const { op.fn == BinaryFn::kPow ? Widen() : Agree(0); }
  void operator()(const op::Reduce& op) const {
    if (op.fn == ReduceFn::kSum || op.fn == ReduceFn::kMean) Widen();
  }
  void operator()(const op::Unary& op) const {
    if (op.fn == UnaryFn::kExp || op.fn == UnaryFn::kLog) Widen();
  }
  void operator()(const op::Softmax& op) const {
    if (op.log) Widen();
  }
  // f32 where it refuses what it is given.
  void operator()(const op::Custom& op) const {
    std::vector<Spec> specs;
    for (const Var& input : inputs_) specs.push_back(input.spec());
    if (op.custom != nullptr && !op.custom->Infer(specs).ok()) Widen();
  }
  template <typename Other>
  void operator()(const Other&) const {}  // takes one dtype of either, and computes in f32

 private:
  static bool IsParameter(const Var& x) { return x.node()->parameter; }

  void Narrow(size_t begin, size_t end) const {
    for (size_t i = begin; i < std::min(end, inputs_.size()); ++i) {
      if (IsF32(inputs_[i])) inputs_[i] = Narrowed(inputs_[i]);
    }
  }
  void NarrowParameter(size_t i) const {
    if (i < inputs_.size() && IsParameter(inputs_[i])) Narrow(i, i + 1);
  }
  void Widen() const {
    for (Var& input : inputs_) {
      if (IsBf16(input)) input = Apply1(op::Cast{DType::kF32}, {input}, caller_);
    }
  }
  // Beside a bf16 a parameter (a bias, a gain) is narrowed; another f32 value is taken as it is, and the bf16 widened.
  void Agree(size_t begin) const {
    bool any_bf16 = false;
    bool all_narrow = true;
    for (size_t i = begin; i < inputs_.size(); ++i) {
      any_bf16 = any_bf16 || IsBf16(inputs_[i]);
      all_narrow = all_narrow && (IsBf16(inputs_[i]) || IsParameter(inputs_[i]));
    }
    if (!any_bf16) return;
    all_narrow ? Narrow(begin, inputs_.size()) : Widen();
  }

  Var Narrowed(const Var& x) const {
    auto& [kept, narrow] = innermost->narrow_[{x.node().get(), x.output()}];
    if (kept.node() != nullptr) return narrow;
    kept = x;  // so that its address stays its own
    narrow = IsParameter(x) && innermost->copies_ != nullptr ? innermost->copies_->Of(x)
                                                             : Apply1(op::Cast{DType::kBf16}, {x}, caller_);
    return narrow;
  }

  std::vector<Var>& inputs_;
  Caller caller_;
};

std::vector<Var> InCurrentPrecision(const Op& op, std::vector<Var> inputs, Caller caller) {
  if (CurrentPrecision() == Precision::kF32) return inputs;
  if (!std::all_of(inputs.begin(), inputs.end(), [](const Var& input) { return input.ok(); })) return inputs;
  std::visit(PrecisionRules(inputs, caller), op);
  return inputs;
}

}  // namespace gemmill
