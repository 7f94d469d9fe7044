// Prints what a training step of a model computes, without training it: every GEMM, what bounds it on a device and what
// would help, and the plan of the step's memory.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gemmill/examples/explain_memory.h"
#include "gemmill/examples/resume_flags.h"
#include "gemmill/examples/run_options.h"
#include "gemmill/gemmill.h"
#include "gemmill/runtime/file.h"

ABSL_FLAG(std::string, model, "mlp", "mlp: fully-connected layers; moe: a Mixture-of-Experts block");
ABSL_FLAG(std::string, sizes, "784,512,512,10", "inputs, widths of the hidden layers, outputs");
ABSL_FLAG(std::string, activation, "gelu", "gelu, gelu_tanh, relu, tanh, silu, sigmoid or none, between layers");
ABSL_FLAG(std::string, loss, "cross_entropy", "cross_entropy, mse, l1 or bce");
ABSL_FLAG(int64_t, tokens, 2048, "of moe: tokens of a micro-batch");
ABSL_FLAG(int64_t, hidden, 256, "of moe: width of the block");
ABSL_FLAG(int64_t, ffn, 512, "of moe: width inside an expert");
ABSL_FLAG(int64_t, experts, 8, "of moe");
ABSL_FLAG(int64_t, top_k, 2, "of moe: experts that each token goes to");
ABSL_FLAG(std::string, tokens_per_expert, "",
          "of moe: each expert's load, such as a training run has measured; empty: as even as it can be");
ABSL_FLAG(int64_t, batch, 256, "of mlp: samples of a micro-batch");
ABSL_FLAG(std::string, precision, "f32", "f32 or bf16: of weights, inputs and so of the GEMMs");
ABSL_FLAG(std::string, convention, "pytorch", "pytorch (A holds the weights) or tensorflow (B does)");
ABSL_FLAG(std::string, device, "cpu", "cpu (this machine, measured), a100, h100, h200 or b200");
ABSL_FLAG(bool, measure, false, "run each GEMM on this machine and add its rate");
ABSL_FLAG(int64_t, threads, 0, "0: as many as this process may use");
ABSL_FLAG(std::string, json, "", "file for the GEMMs, or the memory, as JSON");
ABSL_FLAG(bool, memory, false, "tell of the memory of training with AdamW, instead of the GEMMs");
ABSL_FLAG(int64_t, global_batch, 0, "of --memory: samples per optimizer step; 0: --batch");
ABSL_FLAG(std::string, micro_batch, "auto", "of --memory: samples per forward and backward pass; auto: what fits");
ABSL_FLAG(std::string, memory_budget, "", "of --memory: such as 80GiB or 50%; empty: what the device has");

namespace gemmill::examples {
namespace {

absl::StatusOr<DType> ParsePrecision(const std::string& name) {
  if (name == "f32") return DType::kF32;
  if (name == "bf16") return DType::kBf16;
  return InvalidArgument("--precision is \"", name, "\", expected f32 or bf16");
}

// The loss by name, and what it compares the model's outputs with.
struct NamedLoss {
  Loss (*of)(const Var& outputs, const Var& target);
  FieldSpec target;
};

absl::StatusOr<NamedLoss> ParseLoss(const std::string& name, int64_t batch, int64_t outputs, DType dtype) {
  const Spec like_outputs{{batch, outputs}, dtype};
  if (name == "cross_entropy") {
    return NamedLoss{[](const Var& y, const Var& target) { return CrossEntropy(y, target); },
                     {"label", Spec{{batch}, DType::kI64}}};
  }
  if (name == "mse") {
    return NamedLoss{[](const Var& y, const Var& target) { return MeanSquaredError(y, target); },
                     {"target", like_outputs}};
  }
  if (name == "l1") {
    return NamedLoss{[](const Var& y, const Var& target) { return MeanAbsoluteError(y, target); },
                     {"target", like_outputs}};
  }
  if (name == "bce") {
    return NamedLoss{[](const Var& y, const Var& target) { return BinaryCrossEntropyWithLogits(y, target); },
                     {"target", like_outputs}};
  }
  return InvalidArgument("--loss is \"", name, "\", expected cross_entropy, mse, l1 or bce");
}

// Sizes whose step is beyond 64-bit counting are refused here, so that nothing below wraps around.
absl::Status CheckCountable(const std::vector<int64_t>& sizes, int64_t batch) {
  double operations = 0;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    const double weights = static_cast<double>(sizes[i]) * static_cast<double>(sizes[i + 1]);
    operations += 6 * weights * static_cast<double>(batch) + 64 * weights;
  }
  if (operations < 4e18) return absl::OkStatus();
  return InvalidArgument("--sizes and --batch make a step of ", operations, " operations, which is beyond counting");
}

// Flags of one model that are given beside another are an error.
absl::Status CheckGiven(const std::set<std::string>& given, const std::string& model) {
  for (const char* flag : {"tokens", "hidden", "ffn", "experts", "top_k", "tokens_per_expert"}) {
    if (model != "moe" && given.count(flag) > 0) return InvalidArgument("--", flag, " is of --model moe, not ", model);
  }
  for (const char* flag : {"sizes", "batch", "activation", "loss"}) {
    if (model != "mlp" && given.count(flag) > 0) return InvalidArgument("--", flag, " is of --model mlp, not ", model);
  }
  return absl::OkStatus();
}

absl::StatusOr<ExplainedModelOf> MlpFlags(int64_t batch) {
  GM_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, ParseSizes("sizes", absl::GetFlag(FLAGS_sizes)));
  if (sizes.size() < 2) return InvalidArgument("--sizes is \"", absl::GetFlag(FLAGS_sizes), "\", expected two or more");
  GM_RETURN_IF_ERROR(CheckCountable(sizes, std::max(batch, absl::GetFlag(FLAGS_global_batch))));
  absl::StatusOr<Activation> activation = ParseActivation(absl::GetFlag(FLAGS_activation));
  if (!activation.ok()) return Annotate(activation.status(), "--activation: ");
  const std::string loss_name = absl::GetFlag(FLAGS_loss);
  GM_RETURN_IF_ERROR(ParseLoss(loss_name, batch, sizes.back(), DType::kF32).status());
  return [=, activation = *activation](DType dtype) -> absl::StatusOr<ExplainedModel> {
    GM_ASSIGN_OR_RETURN(const NamedLoss loss, ParseLoss(loss_name, batch, sizes.back(), dtype));
    GM_ASSIGN_OR_RETURN(
        Mlp made, Mlp::Create({.sizes = sizes, .activation = activation}, {.dtype = dtype, .reserve_only = true}));
    const auto model = std::make_shared<const Mlp>(std::move(made));
    const auto loss_of = [=](const Inputs& in) { return loss.of((*model)(in["x"]), in[loss.target.name]); };
    return ExplainedModel{model, loss_of, {{"x", Spec{{batch, sizes[0]}, dtype}}, loss.target}};
  };
}

absl::StatusOr<ExplainedModelOf> MoeFlags(int64_t tokens) {
  const MoeOptions options{
      .hidden = absl::GetFlag(FLAGS_hidden),
      .ffn = absl::GetFlag(FLAGS_ffn),
      .experts = absl::GetFlag(FLAGS_experts),
      .top_k = absl::GetFlag(FLAGS_top_k),
      .routing = absl::GetFlag(FLAGS_top_k) == 1 ? Routing::kSoftmax : Routing::kSoftmaxRenormalized};
  GM_RETURN_IF_ERROR(Moe::Create(options, {.reserve_only = true}).status());
  // The rows of a step as sizes of layers: what would be beyond counting is refused.
  const int64_t rows = std::max(tokens, absl::GetFlag(FLAGS_global_batch));
  if (static_cast<double>(rows) * static_cast<double>(options.top_k) > 1e15) {
    return InvalidArgument("--tokens ", rows, " times --top_k ", options.top_k, " rows are beyond counting");
  }
  GM_RETURN_IF_ERROR(CheckCountable({options.hidden, 3 * options.ffn}, rows * options.top_k));
  return [=](DType dtype) -> absl::StatusOr<ExplainedModel> {
    GM_ASSIGN_OR_RETURN(Moe made, Moe::Create(options, {.dtype = dtype, .reserve_only = true}));
    const auto model = std::make_shared<const Moe>(std::move(made));
    const auto loss_of = [=](const Inputs& in) { return MeanSquaredError((*model)(in["x"]), in["target"]); };
    const Spec x{{tokens, options.hidden}, dtype};
    return ExplainedModel{model, loss_of, {{"x", x}, {"target", x}}};
  };
}

absl::StatusOr<std::vector<int64_t>> LoadFlags(bool moe) {
  const std::string text = absl::GetFlag(FLAGS_tokens_per_expert);
  if (!moe || text.empty()) return std::vector<int64_t>{};
  std::vector<int64_t> loads;
  int64_t total = 0;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int64_t load = 0;
    if (!absl::SimpleAtoi(part, &load) || load < 0) {
      return InvalidArgument("--tokens_per_expert: \"", part, "\" is no number of tokens");
    }
    loads.push_back(load);
    if (__builtin_add_overflow(total, load, &total)) total = -1;
  }
  const int64_t experts = absl::GetFlag(FLAGS_experts);
  const int64_t rows = absl::GetFlag(FLAGS_tokens) * absl::GetFlag(FLAGS_top_k);
  if (static_cast<int64_t>(loads.size()) != experts || total < 0 || total > rows) {
    return InvalidArgument("--tokens_per_expert has ", loads.size(), " loads of ", total, " in all, expected ", experts,
                           " of at most --tokens times --top_k, ", rows);
  }
  return loads;
}

absl::Status Explain(const std::set<std::string>& given) {
  const std::string model_name = absl::GetFlag(FLAGS_model);
  const bool moe = model_name == "moe";
  if (!moe && model_name != "mlp") return InvalidArgument("--model is \"", model_name, "\", expected mlp or moe");
  GM_RETURN_IF_ERROR(CheckGiven(given, model_name));
  const int64_t batch = moe ? absl::GetFlag(FLAGS_tokens) : absl::GetFlag(FLAGS_batch);
  GM_RETURN_IF_ERROR(CheckRange(moe ? "tokens" : "batch", batch, 1));
  GM_RETURN_IF_ERROR(CheckRange("threads", absl::GetFlag(FLAGS_threads), 0, 1024));
  GM_RETURN_IF_ERROR(CheckRange("global_batch", absl::GetFlag(FLAGS_global_batch), 0));
  if (!absl::GetFlag(FLAGS_memory)) {
    for (const auto& [flag, is_given] : {std::pair("global_batch", absl::GetFlag(FLAGS_global_batch) > 0),
                                         std::pair("micro_batch", absl::GetFlag(FLAGS_micro_batch) != "auto"),
                                         std::pair("memory_budget", !absl::GetFlag(FLAGS_memory_budget).empty())}) {
      if (is_given)
        return InvalidArgument("--", flag, " is of --memory; give both, or --", moe ? "tokens" : "batch", " alone");
    }
  } else if (absl::GetFlag(FLAGS_measure)) {
    return InvalidArgument("--measure runs GEMMs, and --memory is a dry run; give one of them");
  }
  GM_ASSIGN_OR_RETURN(const ExplainedModelOf model_of, moe ? MoeFlags(batch) : MlpFlags(batch));
  GM_ASSIGN_OR_RETURN(const std::vector<int64_t> loads, LoadFlags(moe));
  GM_ASSIGN_OR_RETURN(const DType dtype, ParsePrecision(absl::GetFlag(FLAGS_precision)));
  const absl::StatusOr<GemmConvention> convention = ParseConvention(absl::GetFlag(FLAGS_convention));
  if (!convention.ok()) return Annotate(convention.status(), "--convention: ");
  const std::string device = absl::GetFlag(FLAGS_device);
  GM_RETURN_IF_ERROR(Annotate(CheckRooflineDevice(device), "--device: "));
  if (absl::GetFlag(FLAGS_threads) > 0) {
    GM_RETURN_IF_ERROR(SetNumThreads(static_cast<int>(absl::GetFlag(FLAGS_threads))));
  }

  if (absl::GetFlag(FLAGS_memory)) {
    const int64_t asked = absl::GetFlag(FLAGS_global_batch);
    return ExplainMemory({.model = model_of,
                          .dtype = dtype,
                          .device = device,
                          .global_batch = asked > 0 ? asked : batch,
                          .micro_batch = absl::GetFlag(FLAGS_micro_batch),
                          .memory_budget = absl::GetFlag(FLAGS_memory_budget),
                          .json = absl::GetFlag(FLAGS_json)});
  }
  GM_ASSIGN_OR_RETURN(const ExplainedModel model, model_of(dtype));
  GM_ASSIGN_OR_RETURN(const Program program, TrainingProgram(*model.module, model.loss, model.fields));
  const GemmReportOptions options{
      .device = device, .convention = *convention, .measure = absl::GetFlag(FLAGS_measure), .loads = loads};
  GM_ASSIGN_OR_RETURN(const GemmReport report, MakeGemmReport(program, options));
  GM_ASSIGN_OR_RETURN(const Plan plan, MakePlan(program));

  const std::string json = absl::GetFlag(FLAGS_json);
  if (!json.empty()) GM_RETURN_IF_ERROR(Annotate(WriteFile(json, GemmReportJson(report)), "--json: "));
  std::cout << "forward and backward of a micro-batch of " << batch << ", " << program.steps.size() << " steps; "
            << ConventionName(*convention) << " convention\n";
  if (moe) std::cout << "load of the experts: " << (loads.empty() ? "assumed to be even" : "as given") << "\n";
  std::cout << GemmReportString(report)
            << "\nplan, with the workspaces of this machine's kernels: " << PlanString(plan);
  return absl::OkStatus();
}

}  // namespace
}  // namespace gemmill::examples

int main(int argc, char** argv) {
  const std::set<std::string> given = gemmill::examples::GivenFlags(argc, argv);
  gemmill::examples::ParseFlags(argc, argv, "explain prints the GEMMs and the memory of a training step.",
                                "explain.cc");
  return gemmill::examples::ExitCode(gemmill::examples::Explain(given));
}
