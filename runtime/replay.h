// Replay: a Program made ready and run any number of times, without taking memory, without looking at shapes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gemmill/runtime/plan.h"
#include "gemmill/runtime/program.h"

namespace gemmill {

// The memory of temporaries, shared by Replays that never run at the same time; as large as the largest needs.
class Arena {
 public:
  explicit Arena(Device device) : device_(device) {}

  // Makes it hold at least `bytes`. What it held is lost.
  absl::Status Reserve(int64_t bytes);
  // Makes it hold just `bytes`, and gives what it held back to the system.
  absl::Status Resize(int64_t bytes);
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
  int64_t bytes() const { return buffer_ == nullptr ? 0 : buffer_->bytes(); }
  // Another number whenever the buffer has become another.
  int64_t generation() const { return generation_; }
  Device device() const { return device_; }

 private:
  Device device_;
  std::shared_ptr<Buffer> buffer_;
  int64_t generation_ = 0;
};

class Replay {
 public:
  // The error of Check where the program does not hold together.
  static absl::StatusOr<Replay> Create(Program program, std::shared_ptr<Arena> arena);

  // `inputs` of the program's input specs. Errors name the Step's origin, as when it ran on its own; bound tensors that
  // earlier Steps wrote stay written.
  absl::Status Run(absl::Span<const Tensor> inputs);
  // Output i of the last run: bytes of the arena, which the next run of any Replay on it overwrites. An empty Tensor
  // where there is none: before the first run, of no such output, or after the arena has grown.
  Tensor output(size_t i) const;

  // Calls `watch(program(), step number, seconds)` after each Step of later runs; empty: not. Its own time counts for
  // no Step. Of a device that works on by itself, seconds are those of handing the Step over.
  using Watch = std::function<void(const Program& program, size_t step, double seconds)>;
  void SetWatch(Watch watch) { watch_ = std::move(watch); }

  const Program& program() const { return program_; }
  const Plan& plan() const { return plan_; }

 private:
  struct Call {
    Kernel kernel;
    int64_t workspace_offset = -1;
    size_t first_input = 0;  // of addresses_
    size_t first_output = 0;
    size_t inputs = 0;
    size_t outputs = 0;
    void* workspace = nullptr;
    size_t step = 0;
  };

  Replay(Program program, std::shared_ptr<Arena> arena) : program_(std::move(program)), arena_(std::move(arena)) {}
  absl::Status PrepareCalls();
  void* Address(int number) const;
  void BindAddresses();
  absl::Status SetInputs(absl::Span<const Tensor> inputs);

  Program program_;
  std::shared_ptr<Arena> arena_;
  Plan plan_;
  std::vector<Call> calls_;
  std::vector<void*> addresses_;   // of every call's inputs and outputs
  std::vector<int> numbers_;       // the values whose addresses they are
  std::vector<void*> input_data_;  // one per value; of inputs, where the last run found them
  int64_t bound_generation_ = -1;  // of the arena that the addresses are of
  std::vector<Buffer*> written_;   // bound tensors' buffers that a run changes
  Watch watch_;
};

}  // namespace gemmill
