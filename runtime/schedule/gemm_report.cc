#include "gemmill/runtime/schedule/gemm_report.h"

#include <algorithm>
#include <map>
#include <utility>

#include "gemmill/runtime/schedule/gemm_advice.h"
#include "gemmill/runtime/schedule/measure.h"
#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

GemmShape Turned(GemmShape gemm) {
  std::swap(gemm.m, gemm.n);
  return gemm;
}

// In the tensorflow convention a forward GEMM (batch, outputs, inputs) has the dgrad (batch, inputs, outputs) and the
// wgrad (outputs, inputs, batch).
bool BelongsTo(const GemmShape& gemm, GemmRole role, const GemmShape& forward) {
  const int64_t rows = forward.m * forward.batch;
  if (role == GemmRole::kDgrad) return gemm.m * gemm.batch == rows && gemm.n == forward.k && gemm.k == forward.n;
  return gemm.m == forward.n && gemm.n == forward.k && gemm.k * gemm.batch == rows;
}

// Steps compute row-major results, so their M and N are those of the tensorflow convention; unless a layer keeps its
// weight as [inputs, outputs], when its wgrad is the transpose. Which it is shows in the layer's forward GEMMs.
void ToTensorflow(std::vector<GemmRow>& gemms) {
  for (GemmRow& row : gemms) {
    const GemmRole role = row.origin.role;
    if (role == GemmRole::kForward) continue;
    const auto any_forward = [&](const GemmShape& shape) {
      return std::any_of(gemms.begin(), gemms.end(), [&](const GemmRow& other) {
        return other.origin.role == GemmRole::kForward && other.origin.layer == row.origin.layer &&
               BelongsTo(shape, role, other.shape);
      });
    };
    if (!any_forward(row.shape) && any_forward(Turned(row.shape))) row.shape = Turned(row.shape);
  }
}

bool IsGrouped(const Op& op) {
  return std::holds_alternative<op::GroupedMatMul>(op) || std::holds_alternative<op::GroupedMatMulWgrad>(op);
}

const Roofline& Of(const std::vector<Roofline>& rooflines, DType dtype) {
  return *std::find_if(rooflines.begin(), rooflines.end(), [&](const Roofline& r) { return r.dtype == dtype; });
}

absl::Status Measure(const Program& program, std::vector<GemmRow>& gemms) {
  std::map<DType, double> peaks;
  std::vector<Spec> in, out;
  for (GemmRow& row : gemms) {
    if (row.flops == 0) continue;
    const Step& step = program.steps[row.step];
    if (row.grouped) {  // by itself, with the rows that the report has for it
      in = {Spec{{row.shape.m, row.shape.k}, row.dtype}, Spec{{row.shape.k, row.shape.n}, row.dtype}};
      out = {Spec{{row.shape.m, row.shape.n}, row.dtype}};
    } else {
      program.InputSpecs(step, in);
      program.OutputSpecs(step, out);
    }
    const absl::StatusOr<Timing> timing = MeasureOp(row.grouped ? Op(op::MatMul{}) : step.op, in, out);
    if (!timing.ok()) return Annotate(timing.status(), "measuring ", StepString(program, step), ": ");
    row.measured_seconds = timing->median;
    double& peak = peaks[row.dtype];
    if (peak == 0) {
      GM_ASSIGN_OR_RETURN(const Roofline machine, RooflineOf("cpu", row.dtype));
      peak = machine.flops_per_second;
    }
    peak = std::max(peak, row.flops_per_second());
  }
  for (GemmRow& row : gemms) {
    if (row.measured_seconds > 0) row.peak_share = row.flops_per_second() / peaks[row.dtype];
  }
  return absl::OkStatus();
}

}  // namespace

const char* ConventionName(GemmConvention convention) {
  return convention == GemmConvention::kPytorch ? "pytorch" : "tensorflow";
}

absl::StatusOr<GemmConvention> ParseConvention(absl::string_view name) {
  if (name == "pytorch") return GemmConvention::kPytorch;
  if (name == "tensorflow") return GemmConvention::kTensorflow;
  return InvalidArgument("\"", name, "\" is no convention, expected pytorch or tensorflow");
}

absl::StatusOr<GemmReport> MakeGemmReport(const Program& program, const GemmReportOptions& options) {
  GemmReport report{.options = options};
  GM_RETURN_IF_ERROR(CheckRooflineDevice(options.device));
  std::vector<Spec> in, out;
  for (size_t s = 0; s < program.steps.size(); ++s) {
    const Step& step = program.steps[s];
    const Specs inputs = program.InputSpecs(step, in);
    const Specs outputs = program.OutputSpecs(step, out);
    const std::vector<GemmShape> gemms = GemmsOf(step.op, inputs, outputs, options.loads);
    const bool grouped = IsGrouped(step.op);
    for (size_t e = 0; e < gemms.size(); ++e) {
      const GemmShape& gemm = gemms[e];
      const int64_t elements = (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n) * SizeOf(inputs[0].dtype);
      report.gemms.push_back({.step = s,
                              .origin = step.origin,
                              .dtype = inputs[0].dtype,
                              .shape = gemm,
                              .flops = 2 * gemm.m * gemm.n * gemm.k * gemm.batch,
                              .bytes = grouped ? elements : Cost(step.op, inputs, outputs).bytes,
                              .grouped = grouped});
      if (grouped) absl::StrAppend(&report.gemms.back().origin.layer, "[", e, "]");
    }
  }
  ToTensorflow(report.gemms);
  for (GemmRow& row : report.gemms) {
    if (options.convention == GemmConvention::kPytorch) row.shape = Turned(row.shape);
    const auto same = [&](const Roofline& roofline) { return roofline.dtype == row.dtype; };
    if (std::none_of(report.rooflines.begin(), report.rooflines.end(), same)) {
      GM_ASSIGN_OR_RETURN(Roofline roofline, RooflineOf(options.device, row.dtype));
      report.rooflines.push_back(std::move(roofline));
    }
    const Roofline& roofline = Of(report.rooflines, row.dtype);
    const double flops = static_cast<double>(row.flops);
    const double bytes = static_cast<double>(row.bytes);
    row.memory_bound = roofline.MemoryBound(flops, bytes);
    row.predicted_seconds = roofline.Seconds(flops, bytes);
    row.advice = GemmAdvice(row.shape, roofline);
  }
  if (options.measure) GM_RETURN_IF_ERROR(Measure(program, report.gemms));
  return report;
}

}  // namespace gemmill
