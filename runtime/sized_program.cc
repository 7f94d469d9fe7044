#include "gemmill/runtime/sized_program.h"

#include <algorithm>

namespace gemmill {
namespace {

// Whether ops are the same but for sizes.
bool SameButSizes(const Op& a, const Op& b) {
  if (a == b) return true;
  return a.index() == b.index() &&
         (std::holds_alternative<op::Reshape>(a) || std::holds_alternative<op::BroadcastTo>(a) ||
          std::holds_alternative<op::Slice>(a) || std::holds_alternative<op::Unslice>(a) ||
          std::holds_alternative<op::Fill>(a) || std::holds_alternative<op::Iota>(a) ||
          std::holds_alternative<op::ScatterAddRows>(a) || std::holds_alternative<op::DispatchRows>(a));
}

bool SameButSizes(const Program& a, const Program& b) {
  return a.inputs == b.inputs && a.outputs == b.outputs &&
         std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(),
                    [](const Step& x, const Step& y) {
                      return x.inputs == y.inputs && x.outputs == y.outputs && SameButSizes(x.op, y.op);
                    }) &&
         std::equal(a.values.begin(), a.values.end(), b.values.begin(), b.values.end(),
                    [](const Value& x, const Value& y) {
                      return x.storage == y.storage && x.spec.dtype == y.spec.dtype && x.spec.device == y.spec.device &&
                             x.spec.rank() == y.spec.rank() && (x.storage != Storage::kBound || x.spec == y.spec);
                    });
}

}  // namespace

std::optional<SizedProgram> SizedProgram::Between(Program one, int64_t samples_of_one, const Program& other,
                                                  int64_t samples_of_other) {
  if (samples_of_one == samples_of_other || !SameButSizes(one, other)) return std::nullopt;
  SizedProgram sized;
  for (size_t v = 0; v < one.values.size(); ++v) {
    const Shape& a = one.values[v].spec.shape;
    const Shape& b = other.values[v].spec.shape;
    for (size_t d = 0; d < a.size(); ++d) {
      const int64_t more = b[d] - a[d];
      const int64_t samples = samples_of_other - samples_of_one;
      if (more == 0) continue;
      if (more % samples != 0) return std::nullopt;
      const int64_t per_sample = more / samples;
      sized.growing_.push_back({v, d, a[d] - per_sample * samples_of_one, per_sample});
      if (sized.growing_.back().at_none < 0 || per_sample < 0) return std::nullopt;
    }
  }
  sized.program_ = std::move(one);
  return sized;
}

const Program& SizedProgram::For(int64_t samples) {
  for (const Growing& growing : growing_) {
    program_.values[growing.value].spec.shape[growing.dimension] = growing.at_none + growing.per_sample * samples;
  }
  return program_;
}

}  // namespace gemmill
