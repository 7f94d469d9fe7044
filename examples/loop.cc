// A training loop without Trainer: a regression on made-up data.
#include <cstdio>

#include "gemmill/gemmill.h"

namespace gm = gemmill;

absl::Status Train() {
  GM_ASSIGN_OR_RETURN(const gm::Var x, gm::MakeParameter({256, 3}, gm::Initializer::kNormal, {.seed = 7}));
  const gm::Var inputs = x.Detach();
  const gm::Var target = gm::Sin(gm::Sum(inputs * inputs, {{1}, /*keepdims=*/true}));
  GM_ASSIGN_OR_RETURN(const gm::Mlp model,
                      gm::Mlp::Create({.sizes = {3, 64, 64, 1}, .activation = gm::Activation::kTanh}, {.seed = 1}));
  gm::AdamW optimizer({.learning_rate = 3e-3});
  for (int step = 1; step <= 400; ++step) {
    const gm::Var loss = gm::MeanSquaredError(model(inputs), target);
    GM_RETURN_IF_ERROR(optimizer.Apply(model.trainable(), gm::Grad(loss, model.parameters())));
    GM_ASSIGN_OR_RETURN(const double value, loss.Item());
    if (step % 100 == 0) std::printf("step %d  loss %.5f\n", step, value);
  }
  return absl::OkStatus();
}

int main() {
  const absl::Status status = Train();
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
