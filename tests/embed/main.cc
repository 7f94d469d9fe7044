// Prints the report of report.cc, then trains a small Mlp to tell in which quarter of the plane a point lies, and fails
// where it has not learnt it.
#include <cstdint>
#include <iostream>
#include <vector>

#include "gemmill/gemmill.h"

namespace gm = gemmill;

absl::Status PrintReport();  // report.cc

absl::StatusOr<double> Train() {
  GM_RETURN_IF_ERROR(PrintReport());
  std::vector<float> points;
  std::vector<int64_t> quarters;
  for (int i = 0; i < 64; ++i) {
    const float x = static_cast<float>(i % 8) - 3.5f;
    const float y = static_cast<float>(i / 8) - 3.5f;
    points.insert(points.end(), {x, y});
    quarters.push_back((x > 0 ? 1 : 0) + (y > 0 ? 2 : 0));
  }
  GM_ASSIGN_OR_RETURN(const gm::Tensor inputs, gm::Tensor::From(points, {64, 2}));
  GM_ASSIGN_OR_RETURN(const gm::Tensor labels, gm::Tensor::From(quarters, {64}));
  GM_ASSIGN_OR_RETURN(const gm::Mlp model, gm::Mlp::Create({.sizes = {2, 16, 4}}, {.seed = 1}));
  gm::AdamW optimizer({.learning_rate = 0.05});
  for (int step = 0; step < 50; ++step) {
    const gm::Var loss = gm::CrossEntropy(model(gm::Var(inputs)), gm::Var(labels));
    GM_RETURN_IF_ERROR(optimizer.Apply(model.trainable(), gm::Grad(loss, model.parameters())));
  }
  const gm::NoGradScope no_grad;
  const gm::Var loss = gm::CrossEntropy(model(gm::Var(inputs)), gm::Var(labels));
  return loss.Item();
}

int main() {
  const absl::StatusOr<double> loss = Train();
  if (!loss.ok()) {
    std::cerr << loss.status() << "\n";
    return 1;
  }
  std::cout << "loss after 50 steps: " << *loss << "\n";
  return *loss < 0.1 ? 0 : 1;
}
