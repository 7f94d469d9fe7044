#include "gemmill/data/normalize.h"

#include <cmath>
#include <vector>

#include "gemmill/data/visit.h"
#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

absl::StatusOr<Normalization> Find(const Dataset& train, absl::string_view name, Statistics statistics) {
  GM_ASSIGN_OR_RETURN(const Tensor values, train.field(name));
  const int64_t row = statistics == Statistics::kGlobal ? 1 : values.num_elements() / train.size();
  const int64_t rows = row == 0 ? 0 : values.num_elements() / row;
  if (rows == 0)
    return InvalidArgument("field '", name, "' is ", values.spec().ToString(), ": there is nothing to standardize");

  Normalization result{std::vector<double>(row, 0.0), std::vector<double>(row, 1.0)};
  std::vector<double> squares(row, 0.0);
  VisitValues(values, [&](const auto* first) {
    // Differences from the first row keep the sums small, and a constant feature's exactly 0.
    std::vector<double>& mean = result.shift;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < row; ++j) mean[j] += AsDouble(first[i * row + j]) - AsDouble(first[j]);
    }
    for (int64_t j = 0; j < row; ++j) mean[j] = AsDouble(first[j]) + mean[j] / static_cast<double>(rows);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < row; ++j) {
        const double difference = AsDouble(first[i * row + j]) - mean[j];
        squares[j] += difference * difference;
      }
    }
  });
  for (int64_t j = 0; j < row; ++j) {
    const double deviation = std::sqrt(squares[j] / static_cast<double>(rows));
    if (!std::isfinite(deviation) || !std::isfinite(result.shift[j])) {
      return InvalidArgument("field '", name, "', column ", j, ": its mean and deviation are not finite");
    }
    if (deviation > 0) result.scale[j] = 1 / deviation;
  }
  return result;
}

}  // namespace

absl::StatusOr<Normalization> Standardize(const Dataset& train, absl::string_view name, Statistics statistics) {
  return CatchExceptions([&] { return Find(train, name, statistics); });
}

}  // namespace gemmill
