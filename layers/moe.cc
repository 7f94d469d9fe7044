#include "gemmill/layers/moe.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gemmill/autograd/ops.h"
#include "gemmill/autograd/precision.h"
#include "gemmill/layers/auxiliary.h"

namespace gemmill {
namespace {

constexpr Routing kRoutings[] = {Routing::kSoftmax, Routing::kSoftmaxRenormalized, Routing::kTopKSoftmax,
                                 Routing::kSigmoid};

// What a StepSum holds: per expert the choices, those that were not dropped and the probabilities; then tokens, their
// routers' entropies, and the squares of their logsumexp.
struct Places {
  int64_t experts;

  int64_t counts() const { return 0; }
  int64_t kept() const { return experts; }
  int64_t probabilities() const { return 2 * experts; }
  int64_t tokens() const { return 3 * experts; }
  int64_t entropies() const { return 3 * experts + 1; }
  int64_t squares() const { return 3 * experts + 2; }
  int64_t size() const { return 3 * experts + 3; }
};

DType Wide(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }
Var As(const Var& x, DType dtype) { return x.dtype() == dtype ? x : Cast(x, dtype); }

UnaryFn FunctionOf(Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return UnaryFn::kGeluErf;
    case Activation::kGeluTanh:
      return UnaryFn::kGeluTanh;
    case Activation::kRelu:
      return UnaryFn::kRelu;
    case Activation::kTanh:
      return UnaryFn::kTanh;
    case Activation::kSigmoid:
      return UnaryFn::kSigmoid;
    default:
      return UnaryFn::kSilu;
  }
}

std::string Describe(const MoeOptions& options) {
  return absl::StrCat("Moe ", options.experts, " experts, top ", options.top_k, " (", RoutingName(options.routing),
                      "), ", options.hidden, " -> ", options.ffn, ", ", options.gated ? "gated " : "",
                      ActivationName(options.activation),
                      options.shared_experts > 0 ? absl::StrCat(", ", options.shared_experts, " shared") : "");
}

absl::Status Check(const MoeOptions& options) {
  if (options.hidden < 1 || options.ffn < 1) {
    return InvalidArgument("Moe: hidden is ", options.hidden, " and ffn ", options.ffn,
                           ", expected at least 1 of each");
  }
  if (options.experts < 1) return InvalidArgument("Moe: experts is ", options.experts, ", expected at least 1");
  if (options.top_k < 1 || options.top_k > options.experts) {
    return InvalidArgument("Moe: top_k is ", options.top_k, ", expected 1 to the ", options.experts, " experts");
  }
  if (options.top_k == 1 && options.routing != Routing::kSoftmax) {
    return InvalidArgument("Moe: top_k is 1 with ", RoutingName(options.routing),
                           " routing, where the only weight is always 1 and the router gets no gradient; take ",
                           RoutingName(Routing::kSoftmax), " routing, or a top_k of 2 or more");
  }
  if (options.activation == Activation::kNone && !options.gated) {
    return InvalidArgument("Moe: activation is none and gated is false; experts would be linear");
  }
  if (options.activation == Activation::kNone) {
    return InvalidArgument("Moe: activation is none; a gate needs one");
  }
  if (options.shared_experts < 0) {
    return InvalidArgument("Moe: shared_experts is ", options.shared_experts, ", expected 0 or more");
  }
  if (options.capacity_factor.has_value() &&
      !(*options.capacity_factor > 0 && std::isfinite(*options.capacity_factor))) {
    return InvalidArgument("Moe: capacity_factor is ", *options.capacity_factor,
                           ", and experts would take no tokens; expected above 0, or none for experts without limit");
  }
  for (const auto& [name, value] :
       {std::pair("balance_loss", options.balance_loss), std::pair("z_loss", options.z_loss),
        std::pair("bias_update_rate", options.bias_update_rate)}) {
    if (!(value >= 0 && std::isfinite(value)))
      return InvalidArgument("Moe: ", name, " is ", value, ", expected 0 or more");
  }
  return CheckedNumElements({options.experts, 2 * options.hidden, options.ffn}, SizeOf(DType::kF64)).status();
}

// As a stack of Linear layers starts: Kaiming uniform before the activation, Xavier uniform after it.
absl::StatusOr<Var> Stack(int64_t experts, int64_t outputs, int64_t inputs, bool activated, const InitOptions& init) {
  const double fan = static_cast<double>(activated ? inputs : inputs + outputs);
  return MakeParameter({experts, outputs, inputs}, Initializer::kUniform, init, std::sqrt(6 / fan));
}

}  // namespace

const char* RoutingName(Routing routing) {
  static constexpr const char* kNames[] = {"softmax", "softmax_renormalized", "top_k_softmax", "sigmoid"};
  return kNames[static_cast<int>(routing)];
}

absl::StatusOr<Routing> ParseRouting(absl::string_view name) {
  std::string known;
  for (Routing routing : kRoutings) {
    if (name == RoutingName(routing)) return routing;
    absl::StrAppend(&known, known.empty() ? "" : ", ", RoutingName(routing));
  }
  return InvalidArgument("no routing \"", name, "\"; there are ", known);
}

absl::StatusOr<Moe> Moe::Create(const MoeOptions& options, const InitOptions& init) {
  GM_RETURN_IF_ERROR(Check(options));
  const int64_t fc1 = options.gated ? 2 : 1;
  Weights weights;
  GM_ASSIGN_OR_RETURN(weights.router,
                      MakeParameter({options.experts, options.hidden}, Initializer::kXavierUniform, init.Part(0)));
  GM_ASSIGN_OR_RETURN(weights.fc1,
                      Stack(options.experts, fc1 * options.ffn, options.hidden, /*activated=*/true, init.Part(1)));
  GM_ASSIGN_OR_RETURN(weights.fc2, Stack(options.experts, options.hidden, options.ffn, false, init.Part(2)));
  if (options.shared_experts > 0) {
    const int64_t width = options.shared_experts * options.ffn;
    GM_ASSIGN_OR_RETURN(weights.shared_fc1,
                        MakeParameter({fc1 * width, options.hidden}, Initializer::kKaimingUniform, init.Part(3)));
    GM_ASSIGN_OR_RETURN(weights.shared_fc2,
                        MakeParameter({options.hidden, width}, Initializer::kXavierUniform, init.Part(4)));
  }
  if (options.bias_update_rate > 0) {
    InitOptions wide = init;
    wide.dtype = DType::kF32;
    GM_ASSIGN_OR_RETURN(weights.bias, MakeParameter({options.experts}, Initializer::kZeros, wide));
    weights.bias.SetRequiresGrad(false);
  }
  return Moe(options, std::move(weights));
}

Moe::Moe(const MoeOptions& options, Weights weights)
    : Module(Describe(options)), options_(options), last_(std::make_shared<std::vector<double>>()) {
  weights_.router = AddParameter("router.weight", std::move(weights.router));
  weights_.fc1 = AddParameter("experts.fc1", std::move(weights.fc1));
  weights_.fc2 = AddParameter("experts.fc2", std::move(weights.fc2));
  if (options.shared_experts > 0) {
    weights_.shared_fc1 = AddParameter("shared.fc1", std::move(weights.shared_fc1));
    weights_.shared_fc2 = AddParameter("shared.fc2", std::move(weights.shared_fc2));
  }
  if (options.bias_update_rate > 0) weights_.bias = AddParameter("router.bias", std::move(weights.bias));
  SetGemm(weights_.fc1.shape()[1], weights_.fc1.shape()[2]);
  const auto after_step = [last = last_, bias = weights_.bias, experts = options.experts,
                           rate = options.bias_update_rate, moved = std::vector<float>()](
                              absl::Span<const double> values, bool updated) mutable -> absl::Status {
    last->assign(values.begin(), values.end());
    if (bias.node() == nullptr || !updated) return absl::OkStatus();
    const absl::Span<const double> counts = values.subspan(0, static_cast<size_t>(experts));
    double mean = 0;
    for (const double count : counts) mean += count / static_cast<double>(experts);
    GM_ASSIGN_OR_RETURN(Tensor value, bias.Value());
    moved.resize(counts.size());
    GM_RETURN_IF_ERROR(CopyToHost(value.data(), moved.data(), value.spec().bytes(), value.device()));
    for (size_t e = 0; e < counts.size(); ++e) {
      const double sign = counts[e] > mean ? -1 : counts[e] < mean ? 1 : 0;
      moved[e] = static_cast<float>(moved[e] + sign * rate);
    }
    GM_RETURN_IF_ERROR(CopyFromHost(moved.data(), value.data(), value.spec().bytes(), value.device()));
    value.buffer()->MarkWritten();
    return absl::OkStatus();
  };
  sum_ = std::make_shared<const StepSum>(StepSum{.size = Places{options.experts}.size(),
                                                 .in_loss = options.balance_loss > 0 || options.z_loss > 0,
                                                 .after_step = after_step});
  AddStepSum(sum_);
}

// Of an input, brought to [tokens, hidden].
struct Moe::Tokens {
  Var x;
  int64_t count = 0;
  Var mask;    // u8 [tokens], or empty
  Var keep;    // the same [tokens, 1]
  Var column;  // and as f32 (f64)
};

struct Moe::Choices {
  Var logits;         // [tokens, experts], f32 or f64
  Var probabilities;  // of each token they add up to 1
  Var weights;        // [tokens, top_k]
  RowAssignment rows;
};

Moe::Choices Moe::Route(const Tokens& tokens) const {
  const LayerScope scope("router");
  const PrecisionScope wide(Precision::kF32);
  // Where a bias chooses experts whose scores are all 0, their weights are 0 too.
  const auto normalized = [](const Var& x) { return x / (Sum(x, {{-1}, /*keepdims=*/true}) + 1e-20); };
  Choices choices;
  const DType dtype = Wide(weights_.router.dtype());
  choices.logits = MatMul(As(tokens.x, dtype), As(weights_.router, dtype), {.trans_b = true});
  Var scores;
  if (options_.routing == Routing::kSigmoid) {
    scores = Sigmoid(choices.logits);
    choices.probabilities = normalized(scores);
  } else {
    choices.probabilities = Softmax(choices.logits);
    scores = options_.routing == Routing::kTopKSoftmax ? choices.logits : choices.probabilities;
  }
  Var by = scores.Detach();
  if (weights_.bias.node() != nullptr) by = by + As(weights_.bias.Detach(), dtype);
  const Var index = TopK(by, options_.top_k);
  const Var chosen = TakeAlong(scores, index);
  switch (options_.routing) {
    case Routing::kSoftmax:
      choices.weights = chosen;
      break;
    case Routing::kTopKSoftmax:
      choices.weights = Softmax(chosen);
      break;
    case Routing::kSoftmaxRenormalized:
    case Routing::kSigmoid:
      choices.weights = normalized(chosen);
      break;
  }
  choices.rows = AssignRows(index, options_.experts,
                            {.capacity_factor = options_.capacity_factor.value_or(0), .mask = tokens.mask});
  return choices;
}

// Statistics and losses, to whoever listens.
void Moe::Tell(const Tokens& tokens, const Choices& choices) const {
  AuxiliaryScope* const auxiliary = AuxiliaryScope::Current();
  if (auxiliary == nullptr) return;
  const LayerScope scope("router");
  const PrecisionScope wide(Precision::kF32);
  const Places places{options_.experts};
  const DType dtype = choices.logits.dtype();
  const auto counted = [&](const Var& per_token) {  // [tokens, ...] without padding
    return tokens.column.node() == nullptr ? per_token : per_token * tokens.column;
  };
  const Var probabilities = Sum(counted(choices.probabilities), {{0}});
  const Var logsumexp = Reshape(LogSumExp(choices.logits), {tokens.count, 1});
  const Var squares = Sum(counted(logsumexp * logsumexp));
  const Var p = choices.probabilities.Detach();
  const Var entropies = -Sum(counted(p * Log(Maximum(p, 1e-30))));
  const Var count = tokens.column.node() == nullptr ? Fill({1}, static_cast<double>(tokens.count), dtype, p.device())
                                                    : Reshape(Sum(tokens.column), {1});
  const auto as_sum = [](const Var& x) { return Cast(Reshape(x.Detach(), {x.spec().num_elements()}), DType::kF64); };
  const Var& offsets = choices.rows.offsets;
  const Var kept = Slice(offsets, 0, 1, options_.experts + 1) - Slice(offsets, 0, 0, options_.experts);
  const Var local = Concat({as_sum(choices.rows.counts), as_sum(kept), as_sum(probabilities), as_sum(count),
                            as_sum(entropies), as_sum(squares)},
                           0);
  const Var global = auxiliary->Add(sum_, local);
  if (options_.balance_loss == 0 && options_.z_loss == 0) return;
  const Var all_tokens = Reshape(Cast(Slice(global, 0, places.tokens(), places.tokens() + 1), dtype), {});
  Var loss;
  if (options_.balance_loss > 0) {
    const Var choices_of_all = Maximum(all_tokens, 1.0) * static_cast<double>(options_.top_k);
    const Var shares = Cast(Slice(global, 0, 0, options_.experts), dtype) / choices_of_all;
    loss = Sum(shares * probabilities) * (options_.balance_loss * static_cast<double>(options_.experts));
  }
  if (options_.z_loss > 0) {
    const Var z = squares * options_.z_loss;
    loss = loss.node() == nullptr ? z : loss + z;
  }
  auxiliary->AddLoss(loss, all_tokens);
}

Var Moe::Activated(const Var& x) const {
  return options_.gated ? GatedUnary(FunctionOf(options_.activation), x) : Activate(options_.activation, x);
}

Var Moe::Experts(const Tokens& tokens, const Choices& choices) const {
  const LayerScope scope("experts");
  const RowAssignment& to = choices.rows;
  const Var rows = DispatchRows(tokens.x, to.row, tokens.count * options_.top_k);
  const auto fc = [&](absl::string_view name, const Var& x, const Var& weight) {
    const LayerScope layer(name);
    return GroupedMatMul(x, weight, to.offsets, {.trans_b = true});
  };
  const Var inner = Activated(fc("fc1", rows, weights_.fc1));
  return CombineRows(fc("fc2", inner, weights_.fc2), to.row, choices.weights);
}

Var Moe::Shared(const Tokens& tokens) const {
  const LayerScope scope("shared");
  const auto fc = [](const Var& x, const Var& weight) { return MatMul(x, weight, {.trans_b = true}); };
  const Var y = fc(Activated(fc(tokens.x, weights_.shared_fc1)), weights_.shared_fc2);
  return tokens.keep.node() == nullptr ? y : Where(tokens.keep, y, 0.0);
}

Var Moe::operator()(Located x, const Var& mask) const {
  const LayerScope scope(name());
  const CallerScope caller(x.caller);
  if (!x.var.ok()) return x.var;
  const Shape& shape = x.var.shape();
  const auto fail = [&](const absl::Status& status) {
    return Var::Error(
        Annotate(status, Origin{CurrentLayer(), CurrentRole(), CurrentCaller(x.caller)}.ToString(), ": "));
  };
  if (shape.empty() || shape.back() != options_.hidden) {
    return fail(
        InvalidArgument("Moe: the input is ", x.var.spec().ToString(), ", expected [..., ", options_.hidden, "]"));
  }
  Tokens tokens;
  const Shape leading(shape.begin(), shape.end() - 1);
  tokens.count = NumElements(leading);
  tokens.x = Reshape(x, {tokens.count, options_.hidden});
  if (mask.node() != nullptr) {
    if (!mask.ok()) return mask;
    if (mask.dtype() != DType::kU8 || mask.shape() != leading) {
      return fail(InvalidArgument("Moe: the mask is ", mask.spec().ToString(), ", expected ",
                                  Spec{leading, DType::kU8}.ToString(), ", 0 where a token is padding"));
    }
    tokens.mask = Reshape(mask, {tokens.count});
    tokens.keep = Reshape(mask, {tokens.count, 1});
    tokens.column = Cast(NotEqual(tokens.keep, 0.0), Wide(weights_.router.dtype()));
    tokens.x = Where(tokens.keep, tokens.x, 0.0);  // whatever padding holds, be it NaN
  }
  const Choices choices = Route(tokens);
  Tell(tokens, choices);
  Var y = Experts(tokens, choices);
  if (options_.shared_experts > 0) y = y + Shared(tokens);
  return Reshape(y, shape);
}

std::optional<MoeStatistics> Moe::statistics() const {
  if (last_->empty()) return std::nullopt;
  const Places places{options_.experts};
  const auto at = [&](int64_t place) { return (*last_)[static_cast<size_t>(place)]; };
  MoeStatistics statistics{.tokens = static_cast<int64_t>(at(places.tokens()))};
  const double tokens = std::max(at(places.tokens()), 1.0);
  const double experts = static_cast<double>(options_.experts);
  const double choices = tokens * static_cast<double>(options_.top_k);
  double most = 0;
  double kept = 0;
  for (int64_t e = 0; e < options_.experts; ++e) {
    const double count = at(places.counts() + e);
    const double share = count / choices;
    statistics.tokens_per_expert.push_back(static_cast<int64_t>(count));
    statistics.kept_per_expert.push_back(static_cast<int64_t>(at(places.kept() + e)));
    most = std::max(most, count);
    kept += at(places.kept() + e);
    statistics.dead_experts += count == 0 ? 1 : 0;
    if (count > 0 && options_.experts > 1) statistics.load_entropy -= share * std::log(share) / std::log(experts);
    statistics.balance_loss += experts * share * at(places.probabilities() + e) / tokens;
  }
  if (statistics.tokens > 0) {
    statistics.max_violation = most * experts / choices - 1;
    statistics.dropped_share = 1 - kept / choices;
  }
  statistics.router_entropy = at(places.entropies()) / tokens;
  statistics.z_loss = at(places.squares()) / tokens;
  statistics.scaled_balance_loss = options_.balance_loss * statistics.balance_loss;
  statistics.scaled_z_loss = options_.z_loss * statistics.z_loss;
  return statistics;
}

}  // namespace gemmill
