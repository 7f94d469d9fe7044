// Moe: a Mixture-of-Experts block. A router gives each token to the top_k of its experts, each of them a two-layer
// perceptron; what they make of it is added up with the router's weights. Shazeer et al., "Outrageously Large Neural
// Networks: The Sparsely-Gated Mixture-of-Experts Layer" (2017); Fedus et al., "Switch Transformers" (2021); Gale et
// al., "MegaBlocks" (2022), for experts without a limit on their tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gemmill/layers/activation.h"
#include "gemmill/layers/initialize.h"
#include "gemmill/layers/module.h"

namespace gemmill {

// How choices and their weights come from a token's logits, one per expert. Ties go to the lowest expert.
enum class Routing : uint8_t {
  kSoftmax,              // the k largest of softmax(logits), as they are (Switch; DeepSeek-V2)
  kSoftmaxRenormalized,  // the same divided by their sum (Mixtral; Qwen3)
  kTopKSoftmax,          // softmax over the k largest logits (Shazeer et al. 2017; gpt-oss)
  kSigmoid,              // the k largest of sigmoid(logits), divided by their sum (DeepSeek-V3)
};
const char* RoutingName(Routing routing);  // "softmax", "softmax_renormalized", "top_k_softmax", "sigmoid"
absl::StatusOr<Routing> ParseRouting(absl::string_view name);

struct MoeOptions {
  int64_t hidden = 0;  // width of what comes and goes
  int64_t ffn = 0;     // width inside an expert
  int64_t experts = 0;
  int64_t top_k = 2;
  // With `gated`, activation(x gate) * (x up): SwiGLU with kSilu. Without it activation(x w).
  Activation activation = Activation::kSilu;
  bool gated = true;
  Routing routing = Routing::kSoftmaxRenormalized;
  int64_t shared_experts = 0;  // that every token goes to, with weight 1 (DeepSeekMoE, 2024)
  // Without it no token is dropped. Else an expert takes at most ceil(tokens top_k / experts * capacity_factor) of a
  // micro-batch, the first of them by position (GShard, 2020): what of a token's choices is dropped adds nothing to it.
  std::optional<double> capacity_factor = {};
  // Of the load-balancing loss experts * sum_i f_i P_i: f_i is the share of all choices that fell on expert i, before
  // drops, P_i the mean of its probability (of its sigmoid's share, with kSigmoid); 1 where both are even (Switch,
  // equations 4 to 6). Over the global batch, as Qiu et al., "Demons in the Detail" (2025), have it; a model's layers
  // add up.
  double balance_loss = 0;
  // Of the router's z-loss, the mean square of the logits' logsumexp (Zoph et al., "ST-MoE", 2022, equation 5).
  double z_loss = 0;
  // Balancing without a loss (Wang et al., "Auxiliary-Loss-Free Load Balancing", 2024): experts are chosen by their
  // score plus a bias, which after each optimizer step falls by this where an expert had more than the mean of the
  // global batch's choices, and rises by it where it had fewer. Weights are made of the scores alone. 0: none.
  double bias_update_rate = 0;
};

// Of the last training step of a Trainer (or of AuxiliaryScope::AfterStep), over its global batch without padding.
struct MoeStatistics {
  int64_t tokens = 0;
  std::vector<int64_t> tokens_per_expert;  // choices, before drops
  std::vector<int64_t> kept_per_expert;    // after them
  double max_violation = 0;                // most / mean - 1 of tokens_per_expert (Wang et al. 2024, MaxVio)
  double load_entropy = 0;                 // of tokens_per_expert's shares, over log(experts): 1 where even
  int64_t dead_experts = 0;                // without tokens
  double dropped_share = 0;                // of choices
  double router_entropy = 0;               // mean over tokens, of the router's probabilities, in nats
  double balance_loss = 0;                 // raw
  double scaled_balance_loss = 0;          // times its coefficient
  double z_loss = 0;
  double scaled_z_loss = 0;
};

// x [..., hidden] -> [..., hidden]. Parameters: router.weight [experts, hidden], experts.fc1 [experts, 2 ffn or ffn,
// hidden] (gate, then up), experts.fc2 [experts, hidden, ffn], of shared experts shared.fc1 and shared.fc2 as one of
// their joint width, and router.bias [experts], f32 and not trained, with bias_update_rate. The router computes in f32
// whatever the precision. Its losses reach an optimizer through Trainer, or AuxiliaryScope (auxiliary.h).
class Moe : public Module {
 public:
  static absl::StatusOr<Moe> Create(const MoeOptions& options, const InitOptions& init = {});

  // `mask` u8 of x's leading dimensions: tokens with 0 are padding, which no expert computes and nothing counts; of
  // them the output is 0.
  Var operator()(Located x, const Var& mask = {}) const;

  const MoeOptions& options() const { return options_; }
  // Empty before the first step.
  std::optional<MoeStatistics> statistics() const;

 private:
  struct Weights {
    Var router, fc1, fc2, shared_fc1, shared_fc2, bias;
  };
  struct Tokens;
  struct Choices;
  Moe(const MoeOptions& options, Weights weights);

  Choices Route(const Tokens& tokens) const;
  void Tell(const Tokens& tokens, const Choices& choices) const;
  Var Activated(const Var& x) const;
  Var Experts(const Tokens& tokens, const Choices& choices) const;
  Var Shared(const Tokens& tokens) const;

  MoeOptions options_;
  Weights weights_;
  std::shared_ptr<const StepSum> sum_;
  std::shared_ptr<std::vector<double>> last_;  // the values of sum_ after the last step
};

}  // namespace gemmill
