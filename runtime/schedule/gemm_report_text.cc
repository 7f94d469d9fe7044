// A GemmReport for people, and for programs.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gemmill/runtime/json.h"
#include "gemmill/runtime/schedule/gemm_report.h"

namespace gemmill {
namespace {

const char* Bound(const GemmRow& row) { return row.memory_bound ? "memory" : "arithmetic"; }
std::string Layer(const GemmRow& row) { return row.origin.layer.empty() ? "-" : row.origin.layer; }

std::string SizesOf(const GemmRow& row) {
  const std::string batch = row.shape.batch == 1 ? "" : absl::StrCat("  x ", row.shape.batch);
  return absl::StrFormat("%8d %8d %8d%s", row.shape.m, row.shape.n, row.shape.k, batch);
}

std::string MeasuredOf(const GemmRow& row, bool measured) {
  if (!measured) return "";
  return absl::StrFormat(" %12.3f %9.1f %6.1f%%", row.measured_seconds * 1e3, row.flops_per_second() * 1e-9,
                         100 * row.peak_share);
}

}  // namespace

std::string GemmReportString(const GemmReport& report) {
  const bool measured = report.options.measure;
  size_t layer_width = 5;
  size_t sizes_width = 26;
  for (const GemmRow& row : report.gemms) {
    layer_width = std::max(layer_width, Layer(row).size());
    sizes_width = std::max(sizes_width, SizesOf(row).size());
  }
  std::string text;
  for (const Roofline& roofline : report.rooflines) {
    absl::StrAppendFormat(&text, "%s, %s: %.4g TFLOP/s, %.4g GB/s, arithmetic is the bound from %.1f FLOP/byte on\n",
                          roofline.device, DTypeName(roofline.dtype), roofline.flops_per_second * 1e-12,
                          roofline.bytes_per_second * 1e-9, roofline.ridge());
  }
  absl::StrAppendFormat(&text, "%-*s %-7s %-5s %-*s %11s %11s %10s %-10s %11s%s\n", layer_width, "layer", "role",
                        "dtype", sizes_width, "       M        N        K", "GFLOP", "MB", "FLOP/byte", "bound",
                        "at least ms", measured ? "  measured ms   GFLOP/s of peak" : "");
  GemmRow total;
  for (const GemmRow& row : report.gemms) {
    absl::StrAppendFormat(&text, "%-*s %-7s %-5s %-*s %11.4f %11.3f %10.1f %-10s %11.4f%s\n", layer_width, Layer(row),
                          RoleName(row.origin.role), DTypeName(row.dtype), sizes_width, SizesOf(row),
                          static_cast<double>(row.flops) * 1e-9, static_cast<double>(row.bytes) * 1e-6, row.intensity(),
                          Bound(row), row.predicted_seconds * 1e3, MeasuredOf(row, measured));
    total.flops += row.flops;
    total.bytes += row.bytes;
    total.predicted_seconds += row.predicted_seconds;
    total.measured_seconds += row.measured_seconds;
  }
  absl::StrAppendFormat(&text, "%-*s %11.4f %11.3f %10.1f %-10s %11.4f", layer_width + sizes_width + 15,
                        absl::StrCat(report.gemms.size(), " GEMMs"), static_cast<double>(total.flops) * 1e-9,
                        static_cast<double>(total.bytes) * 1e-6, total.intensity(), "", total.predicted_seconds * 1e3);
  if (measured) {
    absl::StrAppendFormat(&text, " %12.3f %9.1f", total.measured_seconds * 1e3, total.flops_per_second() * 1e-9);
  }
  text += "\n";
  for (const GemmRow& row : report.gemms) {
    for (const std::string& advice : row.advice) {
      absl::StrAppend(&text, Layer(row), " ", RoleName(row.origin.role), ": ", advice, "\n");
    }
  }
  return text;
}

std::string GemmReportJson(const GemmReport& report) {
  nlohmann::json gemms = nlohmann::json::array();
  for (const GemmRow& row : report.gemms) {
    nlohmann::json gemm = {{"layer", row.origin.layer},
                           {"role", RoleName(row.origin.role)},
                           {"origin", row.origin.caller.ToString()},
                           {"dtype", DTypeName(row.dtype)},
                           {"m", row.shape.m},
                           {"n", row.shape.n},
                           {"k", row.shape.k},
                           {"batch", row.shape.batch},
                           {"flops", row.flops},
                           {"bytes", row.bytes},
                           {"intensity", row.intensity()},
                           {"bound", Bound(row)},
                           {"predicted_seconds", row.predicted_seconds},
                           {"advice", row.advice}};
    if (report.options.measure) {
      gemm["gflops"] = row.flops_per_second() * 1e-9;
      gemm["peak_share"] = row.peak_share;
    }
    gemms.push_back(std::move(gemm));
  }
  return JsonText({{"convention", ConventionName(report.options.convention)},
                   {"device", report.options.device},
                   {"gemms", std::move(gemms)}});
}

}  // namespace gemmill
