// Trace: runs a function once with ops only recorded, and gives the Program of what it would have computed. Inside,
// shapes and dtypes are known, values are not: reading one is an error that names the line, and the Trace's own error
// too, whatever the function makes of it. Vars from outside (parameters, constants) are bound: a run of the Program
// reads their bytes as they are then.
#pragma once

#include <functional>
#include <unordered_map>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "gemmill/autograd/var.h"
#include "gemmill/runtime/program.h"

namespace gemmill {

// `fn` gets a Var for each of `inputs`; the Vars that it returns are the Program's outputs. What it throws is an error.
using TracedFn = std::function<std::vector<Var>(const std::vector<Var>& inputs)>;
absl::StatusOr<Program> Trace(const TracedFn& fn, Specs inputs);

// What Apply records into; one per thread at most. For Apply and Var alone.
class Recorder {
 public:
  Recorder();
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // This thread's, or null outside of Trace.
  static Recorder* Current();

  Var Input(const Spec& spec);
  // The value that `var` stands for; one from outside becomes a bound value.
  absl::StatusOr<int> NumberOf(const Var& var);
  // Adds a step whose outputs are those of `node`, which has its specs and origin.
  absl::Status Record(const Op& op, absl::Span<const Var> inputs, const std::shared_ptr<Node>& node);
  // Another node with the same value.
  void Share(const Var& var, const std::shared_ptr<Node>& node);

  // A value was asked for that is only being recorded. The first such error is what comes of the Trace.
  void Refused(const absl::Status& error) { refused_.Update(error); }
  const absl::Status& refused() const { return refused_; }

  Program Finish(std::vector<int> outputs);

 private:
  Recorder* before_;
  Program program_;
  absl::Status refused_;
  std::unordered_map<const Node*, std::vector<int>> numbers_;  // of each output of a node
  std::vector<std::shared_ptr<Node>> nodes_;                   // kept, so that their addresses stay theirs
  std::unordered_map<const void*, std::vector<int>> bound_;    // by address
};

}  // namespace gemmill
