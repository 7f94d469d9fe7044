// Models made of what layers there are, by chance: what one seed gives is the same everywhere.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/layers/training.h"

namespace gemmill {

class RandomModel : public Module {
 public:
  explicit RandomModel(uint32_t seed) : random_(seed) {
    constexpr DType kDTypes[] = {DType::kF32, DType::kF32, DType::kF32, DType::kBf16, DType::kF64};
    init_ = {.seed = seed, .dtype = kDTypes[Below(5)]};
    inputs_ = width_ = Width();
    tokens_ = Below(4) == 0 ? 1 + Below(3) : 0;
    const int64_t count = 1 + Below(6);
    for (int64_t i = 0; i < count; ++i) AddLayer();
    AddLinear(classes_);
    loss_ = Below(5);
    global_batch_ = 1 + Below(64);
    micro_batch_ = Below(2) == 0 ? 0 : 1 + Below(global_batch_);
    clip_norm_ = Below(3) == 0 ? 0.5 : 0;
    optimizer_ = Below(4);
  }
  RandomModel(const RandomModel&) = delete;  // layers point to one another
  RandomModel& operator=(const RandomModel&) = delete;

  Loss operator()(const Inputs& in) const {
    Var x = in["x"];
    for (const Layer& layer : layers_) x = layer(x);
    const Var target = in["target"];
    switch (loss_) {
      case 0:
        return CrossEntropy(x, in["label"]);
      case 1: {
        const Loss loss = CrossEntropy(x, in["label"], {.label_smoothing = 0.1f});
        return loss + Cast(Sum(first_weight_ * first_weight_), loss.sum.dtype()) * 0.01;
      }
      case 2:
        return MeanSquaredError(x, target);
      case 3:
        return BinaryCrossEntropyWithLogits(x, Sigmoid(target));
      default:  // a mean of the user's own, of a part that is detached
        return Loss(Mean(Sin(x) * Tanh(x).Detach()) + Mean(Maximum(x, target)) * 0.5);
    }
  }

  TrainerOptions options() const {
    return {.global_batch = global_batch_,
            .micro_batch = micro_batch_,
            .clip_norm = clip_norm_,
            .schedule = Schedule::WarmupCosine(2, 8),
            .seed = init_.seed};
  }
  std::shared_ptr<Optimizer> NewOptimizer() const {
    switch (optimizer_) {
      case 0:
        return std::make_shared<Sgd>(SgdOptions{.learning_rate = 0.05});
      case 1:
        return std::make_shared<Sgd>(SgdOptions{.learning_rate = 0.05, .momentum = 0.9f, .nesterov = true});
      default:
        return std::make_shared<AdamW>(AdamWOptions{.learning_rate = 0.01});
    }
  }
  // Full batches, but every third.
  Batch NewBatch(int64_t step) const {
    const int64_t samples = step % 3 == 2 ? 1 + step % global_batch_ : global_batch_;
    const auto shape = [&](int64_t width) {
      return tokens_ > 0 ? Shape{samples, tokens_, width} : Shape{samples, width};
    };
    const uint32_t seed = static_cast<uint32_t>(init_.seed) * 100 + static_cast<uint32_t>(step) * 3;
    const auto noise = [&](int64_t width, uint32_t part) {
      return MakeTensor(RandomDoubles(NumElements(shape(width)), -1, 1, seed + part), shape(width), init_.dtype);
    };
    Shape rows = shape(1);
    rows.pop_back();
    std::vector<double> labels;
    for (double label : RandomDoubles(NumElements(rows), -1, 5, seed + 2)) {
      labels.push_back(label < 0 ? -100 : static_cast<int>(label));
    }
    return MakeBatch(
        {{"x", noise(inputs_, 0)}, {"target", noise(classes_, 1)}, {"label", MakeTensor(labels, rows, DType::kI64)}});
  }
  std::string Describe() const {
    return absl::StrCat("seed ", init_.seed, ", ", DTypeName(init_.dtype), ", batch ", global_batch_, " in ",
                        micro_batch_, ", loss ", loss_, ", optimizer ", optimizer_, "\n", Summary(*this));
  }

 private:
  using Layer = std::function<Var(const Var&)>;

  int64_t Below(int64_t n) { return static_cast<int64_t>(random_()) % n; }
  int64_t Width() {
    constexpr int64_t kWidths[] = {1, 3, 8, 17, 64, 200};
    return kWidths[Below(6)];
  }

  // A part of the model, kept where its layer finds it.
  template <typename Part>
  const Part& Keep(absl::StatusOr<Part> made) {
    auto part = std::make_shared<Part>(std::move(made).value());
    AddModule(absl::StrCat("layer", parts_.size()), *part);
    parts_.push_back(part);
    return *part;
  }

  const Linear& AddLinear(int64_t outputs) {
    const Linear& linear = Keep(Linear::Create(
        {.inputs = width_, .outputs = outputs, .bias = Below(3) > 0, .activation = static_cast<Activation>(Below(7))},
        init_.Part(parts_.size())));
    if (first_weight_.node() == nullptr) first_weight_ = linear.weight();
    layers_.push_back([&linear](const Var& x) { return linear(x); });
    width_ = outputs;
    return linear;
  }

  void AddLayer() {
    switch (Below(9)) {
      case 0: {
        const auto& norm = Keep(LayerNorm::Create({.width = width_}, init_));
        return layers_.push_back([&norm](const Var& x) { return norm(x); });
      }
      case 1: {
        const auto& norm = Keep(RmsNorm::Create({.width = width_}, init_));
        return layers_.push_back([&norm](const Var& x) { return norm(x); });
      }
      case 2: {
        const auto& dropout = Keep(Dropout::Create({.rate = 0.25f}));
        return layers_.push_back([&dropout](const Var& x) { return dropout(x); });
      }
      case 3: {  // residual
        const auto& mlp = Keep(Mlp::Create({{width_, 2 * width_, width_}, Activation::kGelu}, init_.Part(99)));
        return layers_.push_back([&mlp](const Var& x) { return x + mlp(x); });
      }
      case 4: {  // one weight, there and back
        const auto& up = Keep(Linear::Create({.inputs = width_, .outputs = Width()}, init_.Part(parts_.size())));
        return layers_.push_back([&up](const Var& x) { return MatMul(Relu(up(x)), up.weight()); });
      }
      case 5: {  // one layer, twice
        const int64_t width = width_;
        const Linear& linear = AddLinear(width);
        return layers_.push_back([&linear](const Var& x) { return linear(x); });
      }
      case 6: {
        const UnaryFn fn = std::vector<UnaryFn>{UnaryFn::kSin, UnaryFn::kSoftplus, UnaryFn::kErf}[Below(3)];
        return layers_.push_back([fn](const Var& x) { return Unary(fn, x) * 1.5 + 0.25; });
      }
      default:
        AddLinear(Width());
    }
  }

  std::mt19937 random_;
  InitOptions init_;
  int64_t inputs_ = 0;
  int64_t width_ = 0;
  int64_t tokens_ = 0;  // in a sample, each with its own label; 0: a sample is one row
  const int64_t classes_ = 5;
  int64_t loss_ = 0;
  int64_t global_batch_ = 0;
  int64_t micro_batch_ = 0;
  double clip_norm_ = 0;
  int64_t optimizer_ = 0;
  Var first_weight_;
  std::vector<Layer> layers_;
  std::vector<std::shared_ptr<const void>> parts_;
};

}  // namespace gemmill
