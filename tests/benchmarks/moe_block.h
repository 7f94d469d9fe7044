// A Mixture-of-Experts block with tokens that go where they are told, for the programs of this folder that measure it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gemmill/autograd/trace.h"
#include "gemmill/runtime/replay.h"
#include "tests/benchmarks/workload.h"

namespace gemmill {

struct MoeWorkload {
  std::string name;
  int64_t experts = 8;
  int64_t tokens = 2048;
  bool skewed = false;  // half of all choices fall on one expert
  int64_t hidden = 256;
  int64_t ffn = 512;
  int64_t top_k = 2;

  int64_t rows() const { return tokens * top_k; }
};

// Forward and backward of a block with SwiGLU in f32, recorded: the output, and the gradients of the weights and of the
// input for a given gradient of the output.
class MoeBlock {
 public:
  explicit MoeBlock(const MoeWorkload& workload)
      : workload_(workload),
        model_(Check(Moe::Create(
            {.hidden = workload.hidden, .ffn = workload.ffn, .experts = workload.experts, .top_k = workload.top_k},
            {.seed = 1}))),
        x_(Noise(2)),
        dy_(Noise(3)) {
    ChooseExperts();
    const auto run = [&](const std::vector<Var>& in) {
      in[0].SetRequiresGrad(true);
      const Var y = model_(in[0]);
      std::vector<Var> wanted = model_.parameters();
      wanted.push_back(in[0]);
      std::vector<Var> results{y};
      for (const Var& gradient : Grad(Sum(y * in[1]), wanted)) results.push_back(gradient);
      return results;
    };
    Program program = passes::Default(WithoutUnused(Check(Trace(run, {x_.spec(), dy_.spec()}))));
    replay_ =
        std::make_unique<Replay>(Check(Replay::Create(std::move(program), std::make_shared<Arena>(Device::Cpu()))));
  }
  MoeBlock(const MoeBlock&) = delete;
  MoeBlock& operator=(const MoeBlock&) = delete;

  void Run() { Check(replay_->Run({x_, dy_})); }

  const MoeWorkload& workload() const { return workload_; }
  const Moe& model() const { return model_; }
  const Tensor& x() const { return x_; }
  const Tensor& dy() const { return dy_; }
  // Of the last run: output, gradients in the order of the model's parameters, that of the input.
  Tensor result(size_t i) const { return replay_->output(i); }
  const Program& program() const { return replay_->program(); }

 private:
  Tensor Noise(uint64_t seed) const {
    const Var noise = Check(MakeParameter({workload_.tokens, workload_.hidden}, Initializer::kNormal, {.seed = seed}));
    return Check(noise.Value());
  }

  // Expert e listens to input e alone, in which a token says that it wants it.
  void ChooseExperts() {
    const int64_t experts = workload_.experts;
    const int64_t hidden = workload_.hidden;
    std::vector<float> router(static_cast<size_t>(experts * hidden), 0);
    for (int64_t e = 0; e < experts; ++e) router[static_cast<size_t>(e * hidden + e)] = 1;
    Tensor weight = Check(model_.parameter("router.weight").Value());
    Check(weight.CopyFrom(Check(Tensor::From(router, weight.shape()))));
    float* const x = static_cast<float*>(x_.data());
    for (int64_t token = 0; token < workload_.tokens; ++token) {
      float* const row = x + token * hidden;
      for (int64_t e = 0; e < experts; ++e) row[e] *= 0.1f;
      for (int64_t choice = 0; choice < workload_.top_k; ++choice) {
        const int64_t even = (token * workload_.top_k + choice) % experts;
        const int64_t expert = !workload_.skewed ? even : choice == 0 ? 0 : 1 + token % (experts - 1);
        row[expert] += 3.0f + 0.5f * static_cast<float>(choice);
      }
    }
  }

  const MoeWorkload workload_;
  Moe model_;
  Tensor x_;
  Tensor dy_;
  std::unique_ptr<Replay> replay_;
};

}  // namespace gemmill
