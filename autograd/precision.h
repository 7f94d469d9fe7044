// Precision: the dtype that the forward pass of a model with f32 parameters is computed and kept in.
//
// In bf16, parameters stay f32 (they are the masters that an optimizer updates). GEMMs read bf16, and what they make,
// and so what a backward pass keeps, is bf16. Sums, means, exponentials, logarithms and losses are given f32, and the
// user's own ops where they refuse bf16; norms and softmax compute in f32 whatever they store. Gradients of parameters
// are f32.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gemmill/autograd/var.h"
#include "gemmill/runtime/kernel.h"
#include "gemmill/runtime/replay.h"

namespace gemmill {

enum class Precision : uint8_t { kF32, kBf16 };
const char* PrecisionName(Precision precision);
absl::StatusOr<Precision> ParsePrecision(absl::string_view name);

// bf16 copies of f32 parameters, for as many uses as there are between two changes of the parameters.
class Bf16Copies {
 public:
  Bf16Copies() = default;
  Bf16Copies(const Bf16Copies&) = delete;
  Bf16Copies& operator=(const Bf16Copies&) = delete;

  // A Cast of `parameter` whose bytes are those of the copy: converted when first asked for, and by Refresh.
  Var Of(const Var& parameter);
  // Converts the parameters that can have changed. Calls `watch`, as Replay does, with one Step for each of them.
  absl::Status Refresh(const Replay::Watch& watch = {});

 private:
  struct Copy {
    Var parameter;
    Tensor value;
    Kernel kernel;
    int64_t version = -1;  // of the parameter's buffer when it was converted
    Program program;       // for watches
  };
  static absl::StatusOr<std::unique_ptr<Copy>> Make(const Var& parameter);
  static absl::Status Convert(Copy& copy);

  std::vector<std::unique_ptr<Copy>> copies_;
};

// Ops inside run in `precision`. For the forward pass alone: Grad leaves any scope around it, because its rules follow
// the dtypes that the forward pass chose. An f32 value is cast once for all of its uses in the scope, a parameter by
// `copies`, if given.
class PrecisionScope {
 public:
  explicit PrecisionScope(Precision precision, std::shared_ptr<Bf16Copies> copies = nullptr);
  ~PrecisionScope();
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  friend class PrecisionRules;
  friend Precision CurrentPrecision();
  Precision precision_;
  std::shared_ptr<Bf16Copies> copies_;
  std::map<std::pair<const Node*, size_t>, std::pair<Var, Var>> narrow_;  // an output of a node: itself, its bf16 Cast
  PrecisionScope* before_;
};
Precision CurrentPrecision();

// For Apply: `inputs` as the scope has them for `op`.
std::vector<Var> InCurrentPrecision(const Op& op, std::vector<Var> inputs, Caller caller);

}  // namespace gemmill
