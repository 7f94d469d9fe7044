// Programs written by hand: values by number, Steps in order.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "gemmill/runtime/program.h"
#include "gemmill/runtime/replay.h"
#include "tests/runtime/expect_close.h"

namespace gemmill {

class Builder {
 public:
  int Input(const Shape& shape, DType dtype = DType::kF32) {
    program_.inputs.push_back(Value({Spec{shape, dtype}, Storage::kInput, {}}));
    return program_.inputs.back();
  }
  int Bound(const Tensor& tensor) { return Value({tensor.spec(), Storage::kBound, tensor}); }
  std::vector<int> Add(const Op& op, const std::vector<int>& inputs, Caller caller = Caller::Here()) {
    std::vector<Spec> specs;
    for (int number : inputs) specs.push_back(program_.values[static_cast<size_t>(number)].spec);
    Step step{op, inputs, {}, {"", GemmRole::kForward, caller}};
    for (const Spec& spec : ValueOf(Infer(op, specs))) step.outputs.push_back(Value({spec, Storage::kTemporary, {}}));
    program_.steps.push_back(step);
    return step.outputs;
  }
  int Unary(UnaryFn fn, int x, Caller caller = Caller::Here()) { return Add(op::Unary{fn}, {x}, caller)[0]; }
  int Binary(BinaryFn fn, int a, int b, Caller caller = Caller::Here()) {
    return Add(op::Binary{fn}, {a, b}, caller)[0];
  }
  int Reshape(int x, const Shape& shape) { return Add(op::Reshape{shape}, {x})[0]; }
  const Spec& spec(int number) const { return program_.values[static_cast<size_t>(number)].spec; }
  Program Finish(const std::vector<int>& outputs) {
    program_.outputs = outputs;
    return program_;
  }

 private:
  int Value(gemmill::Value value) {
    program_.values.push_back(std::move(value));
    return static_cast<int>(program_.values.size()) - 1;
  }
  Program program_;
};

inline Replay MustReplay(const Program& program, std::shared_ptr<Arena> arena = nullptr) {
  absl::StatusOr<Replay> replay =
      Replay::Create(program, arena != nullptr ? arena : std::make_shared<Arena>(Device::Cpu()));
  EXPECT_TRUE(replay.ok()) << replay.status();
  return *std::move(replay);
}

inline Tensor Copy(const Tensor& tensor) {
  Tensor copy = ValueOf(Tensor::Empty(tensor.spec()));
  EXPECT_TRUE(copy.CopyFrom(tensor).ok());
  return copy;
}

// Copies of what one run gives.
inline std::vector<Tensor> OutputsOf(const Program& program, const std::vector<Tensor>& inputs) {
  EXPECT_TRUE(Check(program).ok()) << Check(program);
  Replay replay = MustReplay(program);
  const absl::Status run = replay.Run(inputs);
  EXPECT_TRUE(run.ok()) << run;
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < program.outputs.size(); ++i) outputs.push_back(Copy(replay.output(i)));
  return outputs;
}

inline std::vector<Tensor> InputsFor(const Program& program, uint32_t seed = 1) {
  std::vector<Tensor> inputs;
  for (int number : program.inputs) {
    const Spec& spec = program.values[static_cast<size_t>(number)].spec;
    inputs.push_back(MakeTensor(RandomDoubles(spec.num_elements(), -2, 2, seed++), spec.shape, spec.dtype));
  }
  return inputs;
}

class NamedOp : public CustomOp {
 public:
  explicit NamedOp(std::string name) : name_(std::move(name)) {}
  std::string Name() const override { return name_; }
  absl::StatusOr<std::vector<Spec>> Infer(absl::Span<const Spec> in) const override {
    return std::vector<Spec>(in.begin(), in.end());
  }
  absl::Status Run(absl::Span<const Tensor> in, absl::Span<Tensor> out, Stream&) const override {
    return out[0].CopyFrom(in[0]);
  }

 private:
  std::string name_;
};

}  // namespace gemmill
