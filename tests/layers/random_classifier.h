// Random models to train: what memory plans are tried on.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/layers/training.h"

namespace gemmill {

// A stack of Linear layers of random sizes, some with residual connections and dropout.
class RandomClassifier : public Module {
 public:
  explicit RandomClassifier(uint32_t seed) : Module("random") {
    std::mt19937 random(seed);
    const auto pick = [&](int64_t least, int64_t most) {
      return std::uniform_int_distribution<int64_t>(least, most)(random);
    };
    inputs_ = pick(1, 40);
    classes_ = pick(2, 12);
    int64_t width = inputs_;
    const int64_t layers = pick(1, 5);
    constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu, Activation::kGelu,
                                           Activation::kTanh, Activation::kSilu, Activation::kSigmoid};
    for (int64_t i = 0; i < layers; ++i) {
      const int64_t next = i + 1 == layers ? classes_ : pick(1, 90);
      linears_.push_back(Linear::Create({.inputs = width,
                                         .outputs = next,
                                         .bias = pick(0, 3) > 0,
                                         .activation = i + 1 == layers ? Activation::kNone : kActivations[pick(0, 5)]},
                                        {.seed = seed + static_cast<uint64_t>(i)})
                             .value());
      residual_.push_back(pick(0, 1) == 1);
      dropout_.push_back(pick(0, 3) == 0);
      width = next;
    }
    for (size_t i = 0; i < linears_.size(); ++i) AddModule(absl::StrCat("fc", i + 1), linears_[i]);
  }

  Var operator()(const Var& x) const {
    Var y = x;
    for (size_t i = 0; i < linears_.size(); ++i) {
      Var next = linears_[i](y);
      if (residual_[i]) next = next + Tanh(next) * 0.5;
      if (dropout_[i] && i + 1 < linears_.size()) next = dropping_(next);
      y = next;
    }
    return y;
  }

  LossFunction loss() const {
    return [this](const Inputs& in) { return CrossEntropy((*this)(in["x"]), in["label"]); };
  }
  Batch MakeData(int64_t samples, uint32_t seed) const {
    std::vector<double> labels;
    for (const double value : RandomDoubles(samples, 0, static_cast<double>(classes_), seed + 1000)) {
      labels.push_back(std::min(static_cast<double>(classes_ - 1), std::floor(value)));
    }
    return MakeBatch({{"x", MakeTensor(RandomDoubles(samples * inputs_, -1, 1, seed), {samples, inputs_})},
                      {"label", MakeTensor(labels, {samples}, DType::kI64)}});
  }
  std::vector<FieldSpec> fields() const { return {{"x", Spec{{1, inputs_}}}, {"label", Spec{{1}, DType::kI64}}}; }

 private:
  int64_t inputs_ = 1;
  int64_t classes_ = 2;
  std::vector<Linear> linears_;
  std::vector<bool> residual_;
  std::vector<bool> dropout_;
  Dropout dropping_ = Dropout::Create({.rate = 0.25f}).value();
};

inline int64_t ParameterBytes(const Module& model) {
  int64_t bytes = 0;
  for (const NamedParameter& parameter : model.trainable()) bytes += parameter.value.spec().bytes();
  return bytes;
}

}  // namespace gemmill
