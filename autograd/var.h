// Var: the user's handle to a value and to the graph that made it. All math is on Var: the functions of ops.h, and
// Grad (grad.h) over the graph they leave behind.
//
// Expressions do not fail half-way: a Var that could not be computed is invalid and carries the first error (op, shapes
// and the caller's line); everything made from it is invalid with the same error, and the next verb that returns a
// Status (Value, ToVector, Item, Apply of an optimizer, Step of a Trainer) returns it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gemmill/autograd/context.h"
#include "gemmill/runtime/op.h"
#include "gemmill/runtime/tensor.h"

namespace gemmill {

struct Node;

class Var {
 public:
  Var() = default;  // invalid: "an empty Var"
  // A constant.
  explicit Var(Tensor value);
  // A leaf that gradients are taken with respect to, and that optimizers update in place.
  static Var Parameter(Tensor value);
  static Var Error(absl::Status status);

  absl::Status status() const;
  bool ok() const { return status().ok(); }
  // Of an invalid Var, an empty f32 spec.
  const Spec& spec() const;
  const Shape& shape() const { return spec().shape; }
  DType dtype() const { return spec().dtype; }
  Device device() const { return spec().device; }

  // Whether Grad can reach a parameter from here (for a leaf: whether it is one, and not frozen).
  bool requires_grad() const;
  // Freezes or thaws a leaf, for every handle to it.
  void SetRequiresGrad(bool requires_grad) const;
  // The same value without its history.
  Var Detach() const;

  // Inside a Trace there are no values to read: an error that names both lines, and of the Trace.
  absl::StatusOr<Tensor> Value(Caller caller = Caller::Here()) const;
  template <typename T>
  absl::StatusOr<std::vector<T>> ToVector(Caller caller = Caller::Here()) const {
    GM_ASSIGN_OR_RETURN(const Tensor value, Value(caller));
    absl::StatusOr<std::vector<T>> values = value.ToVector<T>();
    if (!values.ok()) return Annotate(values.status(), CurrentCaller(caller).ToString(), ": ");
    return values;
  }
  // The value of a Var with one element, whatever its dtype.
  absl::StatusOr<double> Item(Caller caller = Caller::Here()) const;

  // Whether both are handles to one output of one node.
  bool Is(const Var& other) const { return node_ == other.node_ && output_ == other.output_; }

  // For rules and recorders: the node and which of its outputs this is.
  const std::shared_ptr<Node>& node() const { return node_; }
  size_t output() const { return output_; }
  Var(std::shared_ptr<Node> node, size_t output) : node_(std::move(node)), output_(output) {}

 private:
  std::shared_ptr<Node> node_;
  size_t output_ = 0;
};

// One op of the graph and its outputs, or a leaf (no op).
struct Node {
  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();  // not recursive: graphs may be deep

  std::optional<Op> op;
  std::vector<Var> inputs;              // kept only where a gradient may be asked for
  std::vector<int64_t> input_versions;  // Buffer::version() of each input when the op ran
  std::vector<Spec> specs;
  std::vector<Tensor> values;
  Origin origin;
  absl::Status status;
  bool requires_grad = false;
  bool parameter = false;  // a leaf that is trained, or was before it was frozen
  bool recorded = false;   // made inside a Trace: it has specs, but no values
};

// An argument of an op, with the line that wrote it. Implicit, so that users write plain expressions: a Var, or a
// number that takes the other operand's dtype.
struct Located {
  Var var;
  std::optional<double> number;
  Caller caller;

  // NOLINTNEXTLINE(google-explicit-constructor)
  Located(Var v, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : var(std::move(v)), caller{file, line} {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Located(double value, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : number(value), caller{file, line} {}
};

// What an op returns: its outputs, or one error in place of every one of them.
class Outputs {
 public:
  explicit Outputs(std::vector<Var> vars) : vars_(std::move(vars)) {}
  explicit Outputs(absl::Status error) : error_(Var::Error(std::move(error))) {}

  // An index that is no output gives an invalid Var.
  Var operator[](size_t i) const;
  bool ok() const { return error_.node() == nullptr; }
  size_t size() const { return vars_.size(); }  // 0 of an error
  std::vector<Var>::const_iterator begin() const { return vars_.begin(); }
  std::vector<Var>::const_iterator end() const { return vars_.end(); }

 private:
  std::vector<Var> vars_;
  Var error_;
};

// The one door through which every op passes: checks and infers, executes (inside a NoGradScope, or where no input
// requires a gradient, without keeping history), and returns the outputs.
Outputs Apply(const Op& op, std::vector<Var> inputs, Caller caller);
// The same for an op with one output, or for its first.
Var Apply1(const Op& op, std::vector<Var> inputs, Caller caller);

}  // namespace gemmill
