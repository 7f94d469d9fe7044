#include "tests/op_sweep/samples.h"

#include <cmath>
#include <utility>

namespace gemmill {

std::vector<double> Apart(int64_t count, double low, double high, int seed) {
  // A permuted grid, off its centre.
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t place = (i * 7919 + seed * 104729) % std::max<int64_t>(count, 1);
    const double value = low + (high - low) * (static_cast<double>(place) + 0.37) / static_cast<double>(count);
    values.push_back(std::abs(value) < 0.02 ? 0.03 : value);
  }
  return values;
}

Argument Plain(const Shape& shape, double low, double high, int seed) {
  return {Argument::Kind::kValue, shape, Apart(NumElements(shape), low, high, seed)};
}

Argument Wide(const Shape& shape, double low, double high, int seed) {
  return {Argument::Kind::kWide, shape, Apart(NumElements(shape), low, high, seed)};
}

Argument Fixed(DType dtype, const Shape& shape, std::vector<double> values) {
  return {Argument::Kind::kFixed, shape, std::move(values), dtype};
}

namespace {

template <size_t... I>
Samples Collect(std::index_sequence<I...>) {
  Samples all;
  const auto append = [&](const Samples& more) { all.insert(all.end(), more.begin(), more.end()); };
  (append(SamplesOf(For<std::variant_alternative_t<I, Op>>{})), ...);
  return all;
}

}  // namespace

Samples AllSamples() { return Collect(std::make_index_sequence<std::variant_size_v<Op>>{}); }

}  // namespace gemmill
