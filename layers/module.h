// Module: what layers share, a list of named parameters. A module is a value whose copies share their parameters: a
// trainer, an optimizer and the user may each hold one of their own.
//
// A layer of one's own derives from Module, gets its parameters with AddParameter and its parts with AddModule in its
// constructor, and has an operator() that opens a LayerScope(name()) (examples/own_layer.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gemmill/autograd/var.h"

namespace gemmill {

struct NamedParameter {
  std::string name = {};  // "fc1.weight"
  Var value = {};
};

// What a layer adds up over each global batch of a training step, whatever micro-batches and ranks it is split into
// (auxiliary.h): f64 [size]. Evaluation adds nothing.
struct StepSum {
  int64_t size = 0;
  // The layer's own losses depend on the sums of the whole global batch: a step in parts computes them first.
  bool in_loss = false;
  // Called after every step with the sums over its global batch. `updated`: the optimizer took the step; false where it
  // was skipped.
  std::function<absl::Status(absl::Span<const double> values, bool updated)> after_step;
};

class Module {
 public:
  // All parameters in the order in which they were added. A tied parameter stands under each of its names.
  const std::vector<NamedParameter>& named_parameters() const { return parameters_; }
  // Each parameter once, frozen ones left out: what Grad and an optimizer take.
  std::vector<NamedParameter> trainable() const;
  std::vector<Var> parameters() const;
  // The parameter of that name, or an invalid Var that lists the names.
  Var parameter(const std::string& name) const;

  // Freezes (or, with false, thaws) the parameters for whose name `matches` is true.
  absl::Status Freeze(const std::function<bool(const std::string& name)>& matches, bool freeze = true) const;

  const std::vector<std::shared_ptr<const StepSum>>& step_sums() const { return step_sums_; }

  // What the module is called inside the module that holds it; empty for the outermost.
  const std::string& name() const { return name_; }

  // A line per layer, in the order in which they were added, for Summary.
  struct Line {
    std::string name;
    std::string description;  // "Linear 784 -> 512, gelu_erf"
    std::vector<Var> parameters;
    int64_t gemm_outputs = 0;  // of the GEMM that a sample passes through; 0 where there is none
    int64_t gemm_inputs = 0;
  };
  const std::vector<Line>& lines() const { return lines_; }

 protected:
  // `description` is what Summary prints for the layer itself; empty for one that only holds others.
  explicit Module(std::string description = "");
  // Copies, moves and destruction are the derived class's.
  Module(const Module&) = default;
  Module(Module&&) = default;
  Module& operator=(const Module&) = default;
  Module& operator=(Module&&) = default;
  ~Module() = default;

  Var AddParameter(const std::string& parameter_name, Var value);
  // `child` is a member of the derived class, complete; it is told its name. Its parameters become "name.parameter".
  void AddModule(const std::string& child_name, Module& child);
  void AddStepSum(std::shared_ptr<const StepSum> sum) { step_sums_.push_back(std::move(sum)); }
  void SetGemm(int64_t outputs, int64_t inputs);

 private:
  std::string name_;
  std::vector<NamedParameter> parameters_;
  std::vector<Line> lines_;
  std::vector<std::shared_ptr<const StepSum>> step_sums_;
};

// A table: each layer with its parameters, its GEMM (outputs x inputs) and its bytes, then the totals.
std::string Summary(const Module& model);

}  // namespace gemmill
