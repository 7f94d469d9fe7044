// Program: a recorded computation, as a flat list of Steps over numbered values. It holds no bytes of its own but names
// the tensors from outside that it reads and writes; Plan (plan.h) gives the others their place, Replay (replay.h) runs
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gemmill/runtime/kernel.h"
#include "gemmill/runtime/op.h"
#include "gemmill/runtime/origin.h"
#include "gemmill/runtime/tensor.h"

namespace gemmill {

// Where a value's bytes are.
enum class Storage : uint8_t {
  kTemporary,  // in the arena, while it is needed
  kInput,      // given anew to every run
  kBound,      // in a tensor that lives outside: a parameter, a gradient, optimizer state, a constant
};

struct Value {
  Spec spec;
  Storage storage = Storage::kTemporary;
  Tensor bound;  // of kBound
};

struct Step {
  Op op;
  std::vector<int> inputs;  // numbers of values
  std::vector<int> outputs;
  Origin origin;
};

struct Program {
  std::vector<Value> values;
  std::vector<Step> steps;
  std::vector<int> inputs;   // the values of kInput, in the order in which they are given
  std::vector<int> outputs;  // the values that are read after a run

  Specs InputSpecs(const Step& step, std::vector<Spec>& storage) const { return SpecsOf(step.inputs, storage); }
  Specs OutputSpecs(const Step& step, std::vector<Spec>& storage) const { return SpecsOf(step.outputs, storage); }

 private:
  Specs SpecsOf(const std::vector<int>& numbers, std::vector<Spec>& storage) const;
};

// "train.cc:12, layer fc1: MatMul (f32[64, 784], f32[512, 784]) -> f32[64, 512]"
std::string StepString(const Program& program, const Step& step);
// "(f32[64, 784], f32[512, 784]) -> f32[64, 512]"
std::string SpecsString(const Program& program, const Step& step);
// A line per step: "%5 f32[64, 512] = MatMul {trans_b} (%0 input f32[64, 784], %1 bound f32[512, 784])  train.cc:12,
// layer fc1", where %5 is value number 5; before them the inputs, after them the outputs.
std::string ProgramString(const Program& program);

// What differs first between two recordings of what should be the same, naming the Step of `now`; nothing where they
// are the same. Bound tensors are the same when they have the same bits.
std::optional<std::string> FirstDifference(const Program& before, const Program& now);

// Steps read what earlier steps (or nobody) wrote, every step's outputs are what Infer says, a temporary is written
// once, bound values have tensors of their specs, inputs are given, and a bound tensor is read only before, or by, the
// step that overwrites it under another number. MakePlan and Replay refuse a Program that does not hold to it.
absl::Status Check(const Program& program);

// Writes output number `output` of the program into `destination`, of the same spec: the Step that makes it does so
// itself where nothing reads destination's old bytes later, else a copy at the end. Refused where another output lies
// there.
absl::Status WriteInto(Program& program, size_t output, const Tensor& destination);
// Several outputs at once, each named once; the destinations do not overlap. On an error the program is as it was.
struct Destination {
  size_t output = 0;
  Tensor tensor;
};
absl::Status WriteInto(Program& program, absl::Span<const Destination> destinations);

// Without the Steps whose results nobody reads. Custom ops stay: they may do more than compute.
Program WithoutUnused(const Program& program);

}  // namespace gemmill
