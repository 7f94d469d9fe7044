// A layer of one's own: a residual block, and a model made of it.
#include <cstdio>
#include <utility>

#include "gemmill/gemmill.h"

namespace gm = gemmill;

// x + fc2(gelu(fc1(norm(x)))) * gain: x [..., width].
class Residual : public gm::Module {
 public:
  static absl::StatusOr<Residual> Create(int64_t width, const gm::InitOptions& init) {
    GM_ASSIGN_OR_RETURN(gm::LayerNorm norm, gm::LayerNorm::Create({.width = width}, init));
    GM_ASSIGN_OR_RETURN(gm::Mlp mlp, gm::Mlp::Create({{width, 4 * width, width}, gm::Activation::kGelu}, init));
    GM_ASSIGN_OR_RETURN(gm::Var gain, gm::MakeParameter({width}, gm::Initializer::kOnes, init));
    return Residual(std::move(norm), std::move(mlp), std::move(gain));
  }

  gm::Var operator()(gm::Located x) const {
    const gm::LayerScope scope(name());
    return x.var + mlp_(norm_(x)) * gain_;
  }

 private:
  Residual(gm::LayerNorm norm, gm::Mlp mlp, gm::Var gain)
      : Module("Residual"), norm_(std::move(norm)), mlp_(std::move(mlp)), gain_(AddParameter("gain", std::move(gain))) {
    AddModule("norm", norm_);
    AddModule("mlp", mlp_);
  }

  gm::LayerNorm norm_;
  gm::Mlp mlp_;
  gm::Var gain_;
};

absl::Status Run() {
  GM_ASSIGN_OR_RETURN(const Residual block, Residual::Create(16, {.seed = 3}));
  std::printf("%s\n", gm::Summary(block).c_str());
  const gm::Var x = gm::Fill({8, 16}, 1.0) * gm::Sin(gm::Cast(gm::Iota(16), gm::DType::kF32));
  gm::Sgd optimizer({.learning_rate = 0.01, .momentum = 0.9f});
  for (int step = 1; step <= 50; ++step) {
    const gm::Var loss = gm::MeanSquaredError(block(x), x * 2.0);
    GM_RETURN_IF_ERROR(optimizer.Apply(block.trainable(), gm::Grad(loss, block.parameters())));
    GM_ASSIGN_OR_RETURN(const double value, loss.Item());
    if (step % 25 == 0) std::printf("step %d  loss %.6f\n", step, value);
  }
  return absl::OkStatus();
}

int main() {
  const absl::Status status = Run();
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
