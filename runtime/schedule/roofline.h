// Roofline: what a device does at most, in arithmetic and in bytes, and which of the two bounds a piece of work
// (Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", 2009).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gemmill/runtime/spec.h"

namespace gemmill {

// Of one device, for arithmetic in one dtype.
struct Roofline {
  std::string device;
  DType dtype = DType::kF32;
  double flops_per_second = 0;  // dense, no sparsity; of f32 in full f32, not TF32
  double bytes_per_second = 0;  // of its memory
  // Of GPUs, else 0: what a GEMM is cut into, and how many such tiles run at a time.
  int64_t multiprocessors = 0;
  int64_t tile_long = 0;
  int64_t tile_short = 0;

  // FLOPs per byte from which on arithmetic is the bound.
  double ridge() const { return flops_per_second / bytes_per_second; }
  bool MemoryBound(double flops, double bytes) const { return flops < ridge() * bytes; }
  // The least time: that of arithmetic or of memory, whichever takes longer.
  double Seconds(double flops, double bytes) const {
    return MemoryBound(flops, bytes) ? bytes / bytes_per_second : flops / flops_per_second;
  }
};

// "cpu", then the GPUs of the table.
std::vector<std::string> RooflineDevices();

// InvalidArgument, which lists them, if it is none of those.
absl::Status CheckRooflineDevice(absl::string_view device);

// By name. GPUs are their vendor's figures; "cpu" is this machine, which is measured for about a second, once per
// process, dtype and number of threads: the best of large GEMMs, and of a pass over memory.
absl::StatusOr<Roofline> RooflineOf(absl::string_view device, DType dtype);

}  // namespace gemmill
