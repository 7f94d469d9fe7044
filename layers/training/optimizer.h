// Optimizers: multi-tensor updates, one pass over all parameters. A loop without Trainer reads
//
//   AdamW optimizer({.learning_rate = 1e-3f});
//   GM_RETURN_IF_ERROR(optimizer.Apply(model.trainable(), Grad(loss, model.parameters())));
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gemmill/autograd/var.h"
#include "gemmill/layers/module.h"
#include "gemmill/runtime/kernel.h"
#include "gemmill/runtime/program.h"

namespace gemmill {

// Parameters that are treated alike. The first group whose rule matches a parameter's name is its group; a parameter of
// no group has the optimizer's weight decay and a scale of 1.
struct ParameterGroup {
  std::function<bool(const std::string& name)> matches = {};
  float weight_decay = 0;
  float learning_rate_scale = 1;
};

// Biases, and the parameters of layers whose name has "norm" in it: customarily not decayed.
bool IsBiasOrNorm(const std::string& name);
std::vector<ParameterGroup> NoDecayOnBiasesAndNorms();

// What changes from step to step.
struct UpdateControl {
  double learning_rate_factor = 1;  // the schedule's
  double gradient_scale = 1;        // 1 / count, and clipping
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One step: parameters are changed in place. `gradients` as Grad gives them for the same parameters, in the
  // parameter's dtype or, of bf16 ones, in f32. The first call makes the state; later calls must name the same
  // parameters. An error leaves everything as it was.
  absl::Status Apply(absl::Span<const NamedParameter> parameters, absl::Span<const Var> gradients,
                     const UpdateControl& control = {});

  // What MakeState, or else the first Apply, makes for these parameters, in state()'s order.
  struct StateSpec {
    std::string parameter;
    std::string kind;
    Spec spec;
  };
  std::vector<StateSpec> StateSpecs(absl::Span<const NamedParameter> parameters) const;
  static constexpr int64_t kControlBytes = 24;  // beside the state: what changes from step to step
  // Makes the state before the first Apply, so that steps take no memory.
  absl::Status MakeState(absl::Span<const NamedParameter> parameters);

  // What the last Apply ran, as a Program of one Step: for profiles and reports, not to be run. Empty before the first.
  Program UpdateProgram(Caller caller = Caller::Here()) const;

  double learning_rate() const { return learning_rate_; }  // before schedule and groups
  int64_t steps() const { return steps_; }                 // taken so far
  // Each kind of state for all parameters in Apply's order; then the f32 "master" of each bf16 parameter (op.h). Empty
  // before MakeState or the first step.
  struct State {
    std::string parameter;
    std::string kind;
    Tensor value;
  };
  const std::vector<State>& state() const { return started_.state; }
  // For resuming: how many steps the state is of.
  void SetSteps(int64_t steps) { steps_ = steps; }
  virtual std::vector<std::string> StateNames() const = 0;  // the kinds but "master": "exp_avg", ...
  // "AdamW": as messages call it.
  virtual std::string Name() const = 0;
  // Refuses hyperparameters that make no sense, of parameter groups too. The first Apply checks them as well.
  absl::Status Validate() const;

 protected:
  Optimizer(double learning_rate, double weight_decay, std::vector<ParameterGroup> groups)
      : learning_rate_(learning_rate), weight_decay_(weight_decay), groups_(std::move(groups)) {}
  // Moves, no copies: two optimizers on one state would each count their own steps.
  Optimizer(Optimizer&&) = default;
  Optimizer& operator=(Optimizer&&) = default;

  // The update of parameters with these hyperparameters.
  virtual Op UpdateOp(std::vector<float> weight_decay, std::vector<float> learning_rate_scale) const = 0;
  // Of the hyperparameters that are its own.
  virtual absl::Status Check() const = 0;

 private:
  // What the first Apply makes and later ones go by.
  struct Started {
    std::vector<std::string> names;  // of the parameters that the state belongs to
    std::vector<State> state;
    std::vector<float> decays;
    std::vector<float> scales;
    // The update's arguments, as op.h lays them out; addresses of gradients are those of the last step.
    Tensor control;
    std::vector<Tensor> updated;                 // weights and state
    std::vector<const Buffer*> updated_buffers;  // sorted
    std::vector<Spec> specs;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    Kernel kernel;  // for `specs`
  };
  absl::StatusOr<Started> Start(absl::Span<const NamedParameter> parameters) const;
  absl::Status CheckNames(absl::Span<const NamedParameter> parameters) const;
  absl::Status SetGradients(absl::Span<const NamedParameter> parameters, absl::Span<const Var> gradients,
                            Started& started, std::vector<Tensor>& copies) const;

  double learning_rate_;
  double weight_decay_;
  std::vector<ParameterGroup> groups_;
  Started started_;
  int64_t steps_ = 0;
};

struct SgdOptions {
  double learning_rate = 1e-2;
  float momentum = 0;
  bool nesterov = false;
  float weight_decay = 0;  // added to the gradient
  std::vector<ParameterGroup> groups = NoDecayOnBiasesAndNorms();
};

// op::Sgd.
class Sgd : public Optimizer {
 public:
  explicit Sgd(const SgdOptions& options = {});
  std::vector<std::string> StateNames() const override;
  std::string Name() const override { return "Sgd"; }

 private:
  Op UpdateOp(std::vector<float> weight_decay, std::vector<float> learning_rate_scale) const override;
  absl::Status Check() const override;

  SgdOptions options_;
};

struct AdamWOptions {
  double learning_rate = 1e-3;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 1e-2f;  // decoupled
  std::vector<ParameterGroup> groups = NoDecayOnBiasesAndNorms();
};

// op::AdamW.
class AdamW : public Optimizer {
 public:
  explicit AdamW(const AdamWOptions& options = {});
  std::vector<std::string> StateNames() const override { return {"exp_avg", "exp_avg_sq"}; }
  std::string Name() const override { return "AdamW"; }

 private:
  Op UpdateOp(std::vector<float> weight_decay, std::vector<float> learning_rate_scale) const override;
  absl::Status Check() const override;

  AdamWOptions options_;
};

}  // namespace gemmill
