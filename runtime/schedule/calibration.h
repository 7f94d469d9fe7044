// Calibration: what this machine does, measured once and saved, so that plans are the same in every run.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gemmill/runtime/cost.h"
#include "gemmill/runtime/origin.h"
#include "gemmill/runtime/schedule/roofline.h"

namespace gemmill {

struct Calibration {
  // GEMMs of a layer with `kWidth` inputs and outputs, for micro-batches of `kSamples`: the rates of the three roles
  // (GemmRole's order).
  static constexpr int64_t kWidth = 512;
  static constexpr std::array<int64_t, 6> kSamples = {1, 16, 64, 256, 1024, 4096};
  std::array<std::array<double, kSamples.size()>, 3> gemm_flops_per_second = {};
  // Of passes over elements: bytes read and written, where they come from a core's own cache, from the one that cores
  // share, and from memory.
  std::array<double, 3> bytes_per_second = {};
  std::array<int64_t, 2> cache_bytes = {};  // of all cores' own caches together, and of the shared one
  double seconds_per_step = 0;              // that a Step takes by itself
  // Of GPUs, else 0: what GEMMs are cut into (Roofline).
  int64_t multiprocessors = 0;
  int64_t tile_long = 0;
  int64_t tile_short = 0;

  // The rate of a GEMM: between the measured ones of its role by the logarithm of its samples, less what is lost in
  // tiles that are not full and in waves of tiles that leave multiprocessors idle.
  double GemmRate(const GemmShape& gemm, GemmRole role) const;
  // The rate of bytes that were last touched `distance` bytes of traffic ago.
  double ByteRate(double distance) const;

  // From a data sheet's figures, for devices that are planned and not measured.
  static Calibration Of(const Roofline& roofline);
};

// Of this machine in f32 at the present number of threads, about half a second of measuring. `disturbed` tells that
// other work came between: numbers that measured twice differ, or slower from nearer memory. Such are put in order.
absl::StatusOr<Calibration> MeasureCalibration(bool* disturbed = nullptr);

std::string CalibrationJson(const Calibration& calibration, const std::string& key);
// InvalidArgument for what is no calibration of this key.
absl::StatusOr<Calibration> ParseCalibration(const std::string& json, const std::string& key);

// The saved one of this CPU, number of threads and version: $XDG_CACHE_HOME/gemmill/calibration-<...>.json, or
// ~/.cache/gemmill. Where there is none that can be read it is measured and, unless it was disturbed, saved; a file
// that cannot be written is told in `note`, and the run goes on. Once per process and number of threads.
absl::StatusOr<Calibration> CalibrationOfThisMachine(std::string* note = nullptr);

}  // namespace gemmill
