// Prints what a training step of a model computes, without training it: every GEMM, what bounds it on a device and what
// would help, and the plan of the step's memory.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "gemmill/examples/explain_memory.h"
#include "gemmill/examples/run_options.h"
#include "gemmill/gemmill.h"
#include "gemmill/runtime/file.h"

ABSL_FLAG(std::string, model, "mlp", "mlp: fully-connected layers");
ABSL_FLAG(std::string, sizes, "784,512,512,10", "inputs, widths of the hidden layers, outputs");
ABSL_FLAG(std::string, activation, "gelu", "gelu, gelu_tanh, relu, tanh, silu, sigmoid or none, between layers");
ABSL_FLAG(std::string, loss, "cross_entropy", "cross_entropy, mse, l1 or bce");
ABSL_FLAG(int64_t, batch, 256, "samples of a micro-batch");
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

absl::Status Explain() {
  if (absl::GetFlag(FLAGS_model) != "mlp") {
    return InvalidArgument("--model is \"", absl::GetFlag(FLAGS_model), "\", expected mlp");
  }
  GM_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, ParseSizes("sizes", absl::GetFlag(FLAGS_sizes)));
  const int64_t batch = absl::GetFlag(FLAGS_batch);
  GM_RETURN_IF_ERROR(CheckRange("batch", batch, 1));
  GM_RETURN_IF_ERROR(CheckRange("threads", absl::GetFlag(FLAGS_threads), 0, 1024));
  if (sizes.size() < 2) return InvalidArgument("--sizes is \"", absl::GetFlag(FLAGS_sizes), "\", expected two or more");
  GM_RETURN_IF_ERROR(CheckRange("global_batch", absl::GetFlag(FLAGS_global_batch), 0));
  if (!absl::GetFlag(FLAGS_memory)) {
    for (const auto& [flag, given] : {std::pair("global_batch", absl::GetFlag(FLAGS_global_batch) > 0),
                                      std::pair("micro_batch", absl::GetFlag(FLAGS_micro_batch) != "auto"),
                                      std::pair("memory_budget", !absl::GetFlag(FLAGS_memory_budget).empty())}) {
      if (given) return InvalidArgument("--", flag, " is of --memory; give both, or --batch alone");
    }
  } else if (absl::GetFlag(FLAGS_measure)) {
    return InvalidArgument("--measure runs GEMMs, and --memory is a dry run; give one of them");
  }
  GM_RETURN_IF_ERROR(CheckCountable(sizes, std::max(batch, absl::GetFlag(FLAGS_global_batch))));
  GM_ASSIGN_OR_RETURN(const DType dtype, ParsePrecision(absl::GetFlag(FLAGS_precision)));
  GM_ASSIGN_OR_RETURN(const NamedLoss loss, ParseLoss(absl::GetFlag(FLAGS_loss), batch, sizes.back(), dtype));
  absl::StatusOr<Activation> activation = ParseActivation(absl::GetFlag(FLAGS_activation));
  if (!activation.ok()) return Annotate(activation.status(), "--activation: ");
  const absl::StatusOr<GemmConvention> convention = ParseConvention(absl::GetFlag(FLAGS_convention));
  if (!convention.ok()) return Annotate(convention.status(), "--convention: ");
  const std::string device = absl::GetFlag(FLAGS_device);
  GM_RETURN_IF_ERROR(Annotate(CheckRooflineDevice(device), "--device: "));
  if (absl::GetFlag(FLAGS_threads) > 0) {
    GM_RETURN_IF_ERROR(SetNumThreads(static_cast<int>(absl::GetFlag(FLAGS_threads))));
  }

  if (absl::GetFlag(FLAGS_memory)) {
    const int64_t asked = absl::GetFlag(FLAGS_global_batch);
    return ExplainMemory({.sizes = sizes,
                          .activation = *activation,
                          .dtype = dtype,
                          .loss = loss.of,
                          .target = loss.target,
                          .device = device,
                          .global_batch = asked > 0 ? asked : batch,
                          .micro_batch = absl::GetFlag(FLAGS_micro_batch),
                          .memory_budget = absl::GetFlag(FLAGS_memory_budget),
                          .json = absl::GetFlag(FLAGS_json)});
  }
  GM_ASSIGN_OR_RETURN(const Mlp model,
                      Mlp::Create({.sizes = sizes, .activation = *activation}, {.dtype = dtype, .reserve_only = true}));
  const auto loss_of = [&](const Inputs& in) { return loss.of(model(in["x"]), in[loss.target.name]); };
  const std::vector<FieldSpec> fields{{"x", Spec{{batch, sizes[0]}, dtype}}, loss.target};
  GM_ASSIGN_OR_RETURN(const Program program, TrainingProgram(model, loss_of, fields));
  const GemmReportOptions options{.device = device, .convention = *convention, .measure = absl::GetFlag(FLAGS_measure)};
  GM_ASSIGN_OR_RETURN(const GemmReport report, MakeGemmReport(program, options));
  GM_ASSIGN_OR_RETURN(const Plan plan, MakePlan(program));

  const std::string json = absl::GetFlag(FLAGS_json);
  if (!json.empty()) GM_RETURN_IF_ERROR(Annotate(WriteFile(json, GemmReportJson(report)), "--json: "));
  std::cout << "forward and backward of a micro-batch of " << batch << ", " << program.steps.size() << " steps; "
            << ConventionName(*convention) << " convention\n"
            << GemmReportString(report)
            << "\nplan, with the workspaces of this machine's kernels: " << PlanString(plan);
  return absl::OkStatus();
}

}  // namespace
}  // namespace gemmill::examples

int main(int argc, char** argv) {
  gemmill::examples::ParseFlags(argc, argv, "explain prints the GEMMs and the memory of a training step.",
                                "explain.cc");
  return gemmill::examples::ExitCode(gemmill::examples::Explain());
}
