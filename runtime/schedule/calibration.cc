#include "gemmill/runtime/schedule/calibration.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include "absl/strings/str_format.h"
#include "gemmill/runtime/file.h"
#include "gemmill/runtime/json.h"
#include "gemmill/runtime/op.h"
#include "gemmill/runtime/schedule/measure.h"
#include "gemmill/runtime/status.h"
#include "gemmill/runtime/threads.h"

namespace gemmill {
namespace {

constexpr int kVersion = 2;                   // of what is measured and how
constexpr double kLaunchSeconds = 3e-6;       // of a GPU's kernel, about
constexpr double kSecondsEach = 0.02;         // of measuring one number
constexpr int64_t kLargest = 16 << 20;        // elements of the pass that memory bounds
constexpr int64_t kSmallestShared = 4 << 20;  // bytes

absl::StatusOr<double> Seconds(const Op& op, Specs inputs, const Spec& output) {
  GM_ASSIGN_OR_RETURN(const Timing timing, MeasureOp(op, inputs, {&output, 1}, kSecondsEach));
  return std::max(timing.best, 1e-9);
}

absl::StatusOr<double> GemmRateOf(size_t role, int64_t samples) {
  constexpr int64_t kWidth = Calibration::kWidth;
  const Spec activations{{samples, kWidth}};
  const Spec weights{{kWidth, kWidth}};
  // Of a layer y = x w^T: y, the gradient of x, and that of w.
  const op::MatMul ops[] = {{false, true}, {false, false}, {true, false}};
  const Spec inputs[] = {activations, role == 2 ? activations : weights};
  GM_ASSIGN_OR_RETURN(const double seconds, Seconds(ops[role], inputs, role == 2 ? weights : activations));
  return 2.0 * static_cast<double>(samples) * kWidth * kWidth / seconds;
}

absl::StatusOr<double> ByteRateOf(int64_t bytes) {
  const Spec spec{{std::max<int64_t>(bytes / 8, 1)}};  // half is read and half is written
  GM_ASSIGN_OR_RETURN(const double seconds, Seconds(op::Unary{UnaryFn::kRelu}, {&spec, 1}, spec));
  return 2.0 * static_cast<double>(spec.bytes()) / seconds;
}

int64_t CacheBytes(int name, int64_t otherwise) {
  const int64_t bytes = sysconf(name);
  return bytes > 0 ? bytes : otherwise;
}

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  }
  return "unknown";
}

std::string Key() { return absl::StrFormat("%s, %d threads, version %d", CpuModel(), NumThreads(), kVersion); }

// Empty where there is no place for it.
std::string CachePath(const std::string& key) {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  std::string folder;
  if (cache != nullptr && cache[0] == '/') {
    folder = cache;
  } else if (home != nullptr && home[0] == '/') {
    folder = std::string(home) + "/.cache";
  } else {
    return "";
  }
  mkdir(folder.c_str(), 0777);  // where it fails, writing does
  folder += "/gemmill";
  mkdir(folder.c_str(), 0777);
  std::string name = key;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '-');
  return folder + "/calibration-" + name + ".json";
}

bool AllPositive(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value) && value > 0; });
}

}  // namespace

double Calibration::GemmRate(const GemmShape& gemm, GemmRole role) const {
  if (multiprocessors > 0) {
    const int64_t rows = gemm.m >= gemm.n ? tile_long : tile_short;
    const int64_t columns = gemm.m >= gemm.n ? tile_short : tile_long;
    const int64_t tiles = ((gemm.m + rows - 1) / rows) * ((gemm.n + columns - 1) / columns) * gemm.batch;
    const int64_t waves = (tiles + multiprocessors - 1) / multiprocessors;
    const double done = static_cast<double>(gemm.m) * static_cast<double>(gemm.n) * static_cast<double>(gemm.batch);
    const double room = static_cast<double>(waves * multiprocessors) * static_cast<double>(rows * columns);
    return gemm_flops_per_second[0][0] * done / room;
  }
  // The rows of a layer's GEMM, and what a weight gradient is summed over.
  const double samples = static_cast<double>((role == GemmRole::kWgrad ? gemm.k : gemm.m) * gemm.batch);
  const auto& rates = gemm_flops_per_second[static_cast<size_t>(role)];
  size_t above = 0;
  while (above < kSamples.size() && static_cast<double>(kSamples[above]) < samples) ++above;
  if (above == 0) return rates.front();
  if (above == kSamples.size()) return rates.back();
  const double low = std::log(static_cast<double>(kSamples[above - 1]));
  const double high = std::log(static_cast<double>(kSamples[above]));
  const double share = (std::log(samples) - low) / (high - low);
  return rates[above - 1] + share * (rates[above] - rates[above - 1]);
}

double Calibration::ByteRate(double distance) const {
  if (distance <= static_cast<double>(cache_bytes[0])) return bytes_per_second[0];
  return bytes_per_second[distance <= static_cast<double>(cache_bytes[1]) ? 1 : 2];
}

Calibration Calibration::Of(const Roofline& roofline) {
  Calibration calibration;
  for (auto& rates : calibration.gemm_flops_per_second) rates.fill(roofline.flops_per_second);
  calibration.bytes_per_second.fill(roofline.bytes_per_second);
  calibration.seconds_per_step = kLaunchSeconds;
  calibration.multiprocessors = roofline.multiprocessors;
  calibration.tile_long = roofline.tile_long;
  calibration.tile_short = roofline.tile_short;
  return calibration;
}

absl::StatusOr<Calibration> MeasureCalibration(bool* disturbed) {
  Calibration calibration;
  bool out_of_order = false;
  for (size_t role = 0; role < calibration.gemm_flops_per_second.size(); ++role) {
    for (size_t i = 0; i < Calibration::kSamples.size(); ++i) {
      GM_ASSIGN_OR_RETURN(calibration.gemm_flops_per_second[role][i], GemmRateOf(role, Calibration::kSamples[i]));
    }
  }
  const int64_t own = CacheBytes(_SC_LEVEL2_CACHE_SIZE, 1 << 20) * NumThreads();
  calibration.cache_bytes = {own, std::max(CacheBytes(_SC_LEVEL3_CACHE_SIZE, kSmallestShared), own)};
  const int64_t touched[] = {own / 2, calibration.cache_bytes[1] / 2, 8 * kLargest};
  for (size_t i = 0; i < calibration.bytes_per_second.size(); ++i) {
    GM_ASSIGN_OR_RETURN(calibration.bytes_per_second[i], ByteRateOf(touched[i]));
  }
  // More samples run no slower, and nearer memory neither; single samples have a path of their own.
  for (auto& rates : calibration.gemm_flops_per_second) {
    for (size_t i = 2; i < rates.size(); ++i) {
      out_of_order = out_of_order || rates[i] < 0.8 * rates[i - 1];
      rates[i] = std::max(rates[i], rates[i - 1]);
    }
  }
  for (size_t i = calibration.bytes_per_second.size() - 1; i-- > 0;) {
    double& rate = calibration.bytes_per_second[i];
    out_of_order = out_of_order || rate < 0.8 * calibration.bytes_per_second[i + 1];
    rate = std::max(rate, calibration.bytes_per_second[i + 1]);
  }
  GM_ASSIGN_OR_RETURN(const double again, GemmRateOf(0, Calibration::kSamples[4]));
  const double before = calibration.gemm_flops_per_second[0][4];
  out_of_order = out_of_order || again < 0.8 * before || before < 0.8 * again;
  if (disturbed != nullptr) *disturbed = out_of_order;
  const Spec one{{1}};
  GM_ASSIGN_OR_RETURN(calibration.seconds_per_step, Seconds(op::Unary{UnaryFn::kRelu}, {&one, 1}, one));
  return calibration;
}

std::string CalibrationJson(const Calibration& calibration, const std::string& key) {
  return JsonText({{"key", key},
                   {"gemm_flops_per_second", calibration.gemm_flops_per_second},
                   {"bytes_per_second", calibration.bytes_per_second},
                   {"cache_bytes", calibration.cache_bytes},
                   {"seconds_per_step", calibration.seconds_per_step}});
}

absl::StatusOr<Calibration> ParseCalibration(const std::string& json, const std::string& key) {
  return CatchExceptions([&]() -> absl::StatusOr<Calibration> {
    const nlohmann::json read = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
    if (!read.is_object() || read.value("key", "") != key) return InvalidArgument("no calibration of \"", key, "\"");
    Calibration calibration;
    read.at("gemm_flops_per_second").get_to(calibration.gemm_flops_per_second);
    read.at("bytes_per_second").get_to(calibration.bytes_per_second);
    read.at("cache_bytes").get_to(calibration.cache_bytes);
    read.at("seconds_per_step").get_to(calibration.seconds_per_step);
    std::vector<double> all(calibration.bytes_per_second.begin(), calibration.bytes_per_second.end());
    for (const auto& rates : calibration.gemm_flops_per_second) all.insert(all.end(), rates.begin(), rates.end());
    all.push_back(calibration.seconds_per_step);
    if (!AllPositive(all)) return InvalidArgument("a calibration with rates that are not above 0");
    return calibration;
  });
}

absl::StatusOr<Calibration> CalibrationOfThisMachine(std::string* note) {
  static std::mutex mutex;
  static auto& known = *new std::map<int, Calibration>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known.find(NumThreads());
  if (found != known.end()) return found->second;
  const std::string key = Key();
  const std::string path = CachePath(key);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  absl::StatusOr<Calibration> calibration = ParseCalibration(text.str(), key);
  if (!calibration.ok()) {
    bool disturbed = false;
    GM_ASSIGN_OR_RETURN(calibration, MeasureCalibration(&disturbed));
    absl::Status saved = path.empty() ? InvalidArgument("neither XDG_CACHE_HOME nor HOME is set") : absl::OkStatus();
    if (saved.ok() && !disturbed) saved = WriteFile(path, CalibrationJson(*calibration, key));
    if (!saved.ok() && note != nullptr) {
      *note = absl::StrCat("the calibration of this machine could not be saved, and is measured in each run: ",
                           std::string(saved.message()));
    }
  }
  known.emplace(NumThreads(), *calibration);
  return calibration;
}

}  // namespace gemmill
