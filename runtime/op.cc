#include "gemmill/runtime/op.h"

#include <charconv>
#include <typeinfo>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gemmill {

const char* FnName(UnaryFn fn) {
  static constexpr const char* kNames[] = {"neg",      "abs",     "exp",  "log",      "sqrt",      "rsqrt",
                                           "tanh",     "sigmoid", "relu", "gelu_erf", "gelu_tanh", "silu",
                                           "softplus", "sin",     "cos",  "erf"};
  static_assert(std::size(kNames) == kUnaryFnCount);
  return kNames[static_cast<int>(fn)];
}

const char* FnName(BinaryFn fn) {
  static constexpr const char* kNames[] = {"add",   "sub",       "mul",  "div",        "pow",     "max",          "min",
                                           "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"};
  static_assert(std::size(kNames) == kBinaryFnCount);
  return kNames[static_cast<int>(fn)];
}

const char* FnName(ReduceFn fn) {
  static constexpr const char* kNames[] = {"sum", "mean", "max", "min"};
  static_assert(std::size(kNames) == kReduceFnCount);
  return kNames[static_cast<int>(fn)];
}

namespace {

struct Namer {
  std::string operator()(const op::MatMul&) const { return "MatMul"; }
  std::string operator()(const op::Unary& op) const { return FnName(op.fn); }
  std::string operator()(const op::UnaryGrad& op) const { return absl::StrCat(FnName(op.fn), " gradient"); }
  std::string operator()(const op::Binary& op) const { return FnName(op.fn); }
  std::string operator()(const op::Where&) const { return "Where"; }
  std::string operator()(const op::Reduce& op) const { return absl::StrCat("reduce ", FnName(op.fn)); }
  std::string operator()(const op::ArgMax&) const { return "ArgMax"; }
  std::string operator()(const op::BroadcastTo&) const { return "BroadcastTo"; }
  std::string operator()(const op::Softmax& op) const { return op.log ? "LogSoftmax" : "Softmax"; }
  std::string operator()(const op::SoftmaxGrad& op) const {
    return op.log ? "LogSoftmax gradient" : "Softmax gradient";
  }
  std::string operator()(const op::Normalize& op) const { return op.centered ? "LayerNorm" : "RmsNorm"; }
  std::string operator()(const op::NormalizeGrad& op) const {
    return op.centered ? "LayerNorm gradient" : "RmsNorm gradient";
  }
  std::string operator()(const op::CrossEntropy&) const { return "CrossEntropy"; }
  std::string operator()(const op::CrossEntropyGrad&) const { return "CrossEntropy gradient"; }
  std::string operator()(const op::GatherRows&) const { return "GatherRows"; }
  std::string operator()(const op::ScatterAddRows&) const { return "ScatterAddRows"; }
  std::string operator()(const op::Reshape&) const { return "Reshape"; }
  std::string operator()(const op::Permute&) const { return "Permute"; }
  std::string operator()(const op::Slice&) const { return "Slice"; }
  std::string operator()(const op::Unslice&) const { return "Unslice"; }
  std::string operator()(const op::Concat&) const { return "Concat"; }
  std::string operator()(const op::OneHot&) const { return "OneHot"; }
  std::string operator()(const op::Cast& op) const { return absl::StrCat("Cast to ", DTypeName(op.dtype)); }
  std::string operator()(const op::Fill&) const { return "Fill"; }
  std::string operator()(const op::Iota&) const { return "Iota"; }
  std::string operator()(const op::Dropout&) const { return "Dropout"; }
  std::string operator()(const op::GlobalNorm&) const { return "GlobalNorm"; }
  std::string operator()(const op::Sgd&) const { return "Sgd"; }
  std::string operator()(const op::AdamW&) const { return "AdamW"; }
  std::string operator()(const op::TopK&) const { return "TopK"; }
  std::string operator()(const op::TakeAlong&) const { return "TakeAlong"; }
  std::string operator()(const op::AddAlong&) const { return "AddAlong"; }
  std::string operator()(const op::AssignRows&) const { return "AssignRows"; }
  std::string operator()(const op::DispatchRows&) const { return "DispatchRows"; }
  std::string operator()(const op::CombineRows&) const { return "CombineRows"; }
  std::string operator()(const op::DotRows&) const { return "DotRows"; }
  std::string operator()(const op::GroupedMatMul&) const { return "GroupedMatMul"; }
  std::string operator()(const op::GroupedMatMulWgrad&) const { return "GroupedMatMul wgrad"; }
  std::string operator()(const op::GatedUnary& op) const { return absl::StrCat("gated ", FnName(op.fn)); }
  std::string operator()(const op::GatedUnaryGrad& op) const {
    return absl::StrCat("gated ", FnName(op.fn), " gradient");
  }
  std::string operator()(const op::FusedMatMul& op) const {
    const char* activation = op.activation.has_value() ? FnName(*op.activation) : "";
    return absl::StrCat("MatMul", op.bias ? " bias" : "", *activation == 0 ? "" : " ", activation);
  }
  std::string operator()(const op::ActivationBiasGrad& op) const {
    return absl::StrCat(FnName(op.fn), " gradient bias gradient");
  }
  std::string operator()(const op::Custom& op) const { return op.custom == nullptr ? "Custom" : op.custom->Name(); }
};

// With as many digits as tell it from its neighbours.
template <typename T>
std::string Number(T value) {
  char text[32];
  return std::string(static_cast<char*>(text), std::to_chars(std::begin(text), std::end(text), value).ptr);
}

template <typename List>
std::string ListString(const List& list) {
  return absl::StrCat("[", absl::StrJoin(list, ", ", [](std::string* out, auto x) { out->append(Number(x)); }), "]");
}

// What OpName and the outputs' specs do not tell; empty where there is nothing.
struct Attributes {
  template <typename T>
  std::string operator()(const T&) const {
    return "";
  }
  std::string operator()(const op::MatMul& op) const {
    return absl::StrCat(op.trans_a ? "trans_a" : "", op.trans_a && op.trans_b ? ", " : "", op.trans_b ? "trans_b" : "");
  }
  std::string operator()(const op::Reduce& op) const { return absl::StrCat("axes ", ListString(op.axes)); }
  std::string operator()(const op::ArgMax& op) const { return absl::StrCat("axis ", op.axis); }
  std::string operator()(const op::Normalize& op) const { return absl::StrCat("epsilon ", Number(op.epsilon)); }
  std::string operator()(const op::CrossEntropy& op) const { return OfLoss(op); }
  std::string operator()(const op::CrossEntropyGrad& op) const { return OfLoss(op); }
  std::string operator()(const op::ScatterAddRows& op) const { return absl::StrCat("index rank ", op.index_rank); }
  std::string operator()(const op::Permute& op) const { return absl::StrCat("axes ", ListString(op.axes)); }
  std::string operator()(const op::Slice& op) const {
    return absl::StrCat("axis ", op.axis, ", ", op.start, ":", op.stop, op.step == 1 ? "" : absl::StrCat(":", op.step));
  }
  std::string operator()(const op::Unslice& op) const {
    return absl::StrCat("axis ", op.axis, ", from ", op.start, op.step == 1 ? "" : absl::StrCat(", step ", op.step));
  }
  std::string operator()(const op::Concat& op) const { return absl::StrCat("axis ", op.axis); }
  std::string operator()(const op::Fill& op) const { return Number(op.value); }
  std::string operator()(const op::Dropout& op) const {
    return absl::StrCat("rate ", Number(op.rate), ", stream ", op.stream);
  }
  std::string operator()(const op::Sgd& op) const {
    return absl::StrCat("momentum ", Number(op.momentum), op.nesterov ? ", nesterov" : "", OfUpdate(op));
  }
  std::string operator()(const op::AdamW& op) const {
    return absl::StrCat("betas ", Number(op.beta1), " and ", Number(op.beta2), ", epsilon ", Number(op.epsilon),
                        OfUpdate(op));
  }
  std::string operator()(const op::AssignRows& op) const {
    return op.capacity_factor == 0 ? "" : absl::StrCat("capacity factor ", Number(op.capacity_factor));
  }
  std::string operator()(const op::GroupedMatMul& op) const { return op.trans_b ? "trans_b" : ""; }
  std::string operator()(const op::FusedMatMul& op) const {
    const std::string matmul = (*this)(op.matmul);
    return absl::StrCat(matmul, !matmul.empty() && op.keep ? ", " : "", op.keep ? "keep" : "");
  }

  template <typename T>
  static std::string OfLoss(const T& op) {
    return absl::StrCat("ignore index ", op.ignore_index, ", label smoothing ", Number(op.label_smoothing));
  }
  template <typename T>
  static std::string OfUpdate(const T& op) {
    return absl::StrCat(", weight decay ", ListString(op.weight_decay), ", learning rate scale ",
                        ListString(op.learning_rate_scale));
  }
};

}  // namespace

bool op::Custom::operator==(const Custom& other) const {
  if (custom == other.custom) return true;
  if (custom == nullptr || other.custom == nullptr) return false;
  const CustomOp& a = *custom;
  const CustomOp& b = *other.custom;
  return typeid(a) == typeid(b) && a.Name() == b.Name();
}

std::string OpName(const Op& op) { return std::visit(Namer{}, op); }

std::string OpString(const Op& op) {
  const std::string attributes = std::visit(Attributes{}, op);
  return attributes.empty() ? OpName(op) : absl::StrCat(OpName(op), " {", attributes, "}");
}

}  // namespace gemmill
