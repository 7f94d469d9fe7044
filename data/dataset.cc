#include "gemmill/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/strings/str_join.h"
#include "gemmill/data/visit.h"
#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

Spec SampleSpec(const Tensor& values, int64_t samples, DType dtype) {
  Spec spec{values.shape(), dtype};
  spec.shape[0] = samples;
  return spec;
}

// Elements of one sample.
int64_t RowSize(const Tensor& values) {
  return std::accumulate(values.shape().begin() + 1, values.shape().end(), int64_t{1}, std::multiplies<int64_t>());
}

absl::StatusOr<Tensor> GatherStored(const Tensor& values, absl::Span<const int64_t> index) {
  GM_ASSIGN_OR_RETURN(Tensor gathered,
                      Tensor::Empty(SampleSpec(values, static_cast<int64_t>(index.size()), values.dtype())));
  const int64_t row_bytes = RowSize(values) * SizeOf(values.dtype());
  if (row_bytes == 0) return gathered;
  const char* from = static_cast<const char*>(values.data());
  char* to = static_cast<char*>(gathered.data());
  for (int64_t sample : index) {
    std::memcpy(to, from + sample * row_bytes, static_cast<size_t>(row_bytes));
    to += row_bytes;
  }
  return gathered;
}

template <typename From, typename To>
void NormalizeRow(const From* from, To* to, int64_t size, const Normalization& normalization) {
  const double* shift = normalization.shift.data();
  const double* scale = normalization.scale.data();
  if (normalization.scale.size() == 1) {
    for (int64_t i = 0; i < size; ++i) to[i] = static_cast<To>((AsDouble(from[i]) - *shift) * *scale);
  } else {
    for (int64_t i = 0; i < size; ++i) to[i] = static_cast<To>((AsDouble(from[i]) - shift[i]) * scale[i]);
  }
}

absl::StatusOr<Tensor> GatherNormalized(const Tensor& values, absl::Span<const int64_t> index,
                                        const Normalization& normalization) {
  const DType dtype = values.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  GM_ASSIGN_OR_RETURN(Tensor gathered, Tensor::Empty(SampleSpec(values, static_cast<int64_t>(index.size()), dtype)));
  const int64_t row = RowSize(values);
  VisitValues(values, [&](const auto* from) {
    for (size_t i = 0; i < index.size(); ++i) {
      const int64_t offset = static_cast<int64_t>(i) * row;
      if (dtype == DType::kF64) {
        NormalizeRow(from + index[i] * row, static_cast<double*>(gathered.data()) + offset, row, normalization);
      } else {
        NormalizeRow(from + index[i] * row, static_cast<float*>(gathered.data()) + offset, row, normalization);
      }
    }
  });
  return gathered;
}

absl::Status CheckField(const Field& field) {
  if (field.name.empty()) return InvalidArgument("a field has no name");
  if (!field.values.valid() || field.values.shape().empty()) {
    return InvalidArgument("field '", field.name, "' has no dimensions; dimension 0 must be the sample");
  }
  if (field.values.device() != Device::Cpu()) {
    return InvalidArgument("field '", field.name, "' lies on ", field.values.device().ToString(),
                           "; a data set is held on the cpu");
  }
  if (field.values.shape()[0] == 0) return InvalidArgument("field '", field.name, "' has no samples");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Tensor> FindField(absl::Span<const Field> fields, absl::string_view name) {
  for (const Field& field : fields) {
    if (field.name == name) return field.values;
  }
  const auto quote = [](std::string* out, const Field& field) { absl::StrAppend(out, "'", field.name, "'"); };
  return absl::NotFoundError(
      absl::StrCat("there is no field '", name, "'; there is ", absl::StrJoin(fields, ", ", quote)));
}

absl::StatusOr<Dataset> Dataset::Create(std::vector<Field> fields, DatasetOptions options) {
  if (fields.empty()) return InvalidArgument("a data set needs at least one field");
  for (size_t i = 0; i < fields.size(); ++i) {
    GM_RETURN_IF_ERROR(CheckField(fields[i]));
    const int64_t samples = fields[i].values.shape()[0];
    const int64_t expected = fields[0].values.shape()[0];
    if (samples != expected) {
      return InvalidArgument("field '", fields[0].name, "' has ", expected, " samples, but field '", fields[i].name,
                             "' has ", samples);
    }
    for (size_t j = 0; j < i; ++j) {
      if (fields[i].name == fields[j].name) return InvalidArgument("two fields are named '", fields[i].name, "'");
    }
  }
  std::set<absl::string_view> names;
  for (const std::string& name : options.class_names) {
    if (!names.insert(name).second) return InvalidArgument("class_names has '", name, "' twice");
  }
  if (options.check_finite) GM_RETURN_IF_ERROR(CheckFinite(fields));
  Dataset dataset;
  dataset.normalizations_.resize(fields.size());
  dataset.fields_ = std::move(fields);
  dataset.class_names_ = std::move(options.class_names);
  return dataset;
}

absl::StatusOr<int64_t> Dataset::NumClasses(absl::string_view label) const {
  GM_ASSIGN_OR_RETURN(const Tensor labels, field(label));
  if (IsFloating(labels.dtype())) {
    return InvalidArgument("field '", label, "' is ", labels.spec().ToString(), "; labels of classes are integers");
  }
  if (!class_names_.empty()) return static_cast<int64_t>(class_names_.size());
  absl::StatusOr<int64_t> classes = 0;
  VisitValues(labels, [&](const auto* values) {
    if constexpr (std::is_integral_v<std::remove_cvref_t<decltype(*values)>>) {
      for (int64_t i = 0; i < labels.num_elements() && classes.ok(); ++i) {
        const int64_t value = values[i];
        if (value < 0 || value == std::numeric_limits<int64_t>::max()) {
          classes = OutOfRange("field '", label, "' of sample ", i, " is ", value, "; labels are 0, 1, ...");
        } else {
          classes = std::max(*classes, value + 1);
        }
      }
    }
  });
  return classes;
}

absl::StatusOr<Dataset> Dataset::WithNormalization(absl::string_view name, Normalization normalization) const {
  GM_ASSIGN_OR_RETURN(const Tensor values, field(name));
  const size_t features = static_cast<size_t>(RowSize(values));
  const size_t given = normalization.scale.size();
  if (normalization.shift.size() != given || (given > 1 && given != features)) {
    return InvalidArgument("normalization of field '", name, "' has ", normalization.shift.size(), " shifts and ",
                           given, " scales, expected 1 or ", features, " of each");
  }
  for (size_t i = 0; i < given; ++i) {
    if (!std::isfinite(normalization.shift[i]) || !std::isfinite(normalization.scale[i])) {
      return InvalidArgument("normalization of field '", name, "', element ", i, ": shift is ", normalization.shift[i],
                             " and scale ", normalization.scale[i], ", expected finite numbers");
    }
  }
  Dataset result = *this;
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (fields_[i].name == name) result.normalizations_[i] = std::move(normalization);
  }
  return result;
}

absl::StatusOr<Normalization> Dataset::normalization(absl::string_view name) const {
  GM_RETURN_IF_ERROR(field(name).status());
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (fields_[i].name == name) return normalizations_[i];
  }
  return Normalization{};
}

absl::Status Dataset::CheckIndex(absl::Span<const int64_t> index) const {
  for (int64_t sample : index) {
    if (sample < 0 || sample >= size()) return OutOfRange("sample ", sample, " of a data set of ", size());
  }
  return absl::OkStatus();
}

absl::StatusOr<Dataset> Dataset::Slice(int64_t start, int64_t stop) const {
  if (start < 0 || start >= stop || stop > size()) {
    return OutOfRange("samples ", start, " to ", stop, " of a data set of ", size(),
                      "; expected 0 <= start < stop <= ", size());
  }
  return CatchExceptions([&] {
    std::vector<int64_t> index(static_cast<size_t>(stop - start));
    std::iota(index.begin(), index.end(), start);
    return Subset(index);
  });
}

absl::StatusOr<Dataset> Dataset::Subset(absl::Span<const int64_t> index) const {
  if (index.empty()) return InvalidArgument("a subset needs at least one sample");
  GM_RETURN_IF_ERROR(CheckIndex(index));
  Dataset result = *this;
  for (Field& field : result.fields_) {
    GM_ASSIGN_OR_RETURN(field.values, GatherStored(field.values, index));
  }
  return result;
}

absl::StatusOr<std::vector<Field>> Dataset::Gather(absl::Span<const int64_t> index) const {
  GM_RETURN_IF_ERROR(CheckIndex(index));
  std::vector<Field> gathered;
  for (size_t i = 0; i < fields_.size(); ++i) {
    const Tensor& values = fields_[i].values;
    GM_ASSIGN_OR_RETURN(Tensor rows, normalizations_[i].empty() ? GatherStored(values, index)
                                                                : GatherNormalized(values, index, normalizations_[i]));
    gathered.push_back({fields_[i].name, std::move(rows)});
  }
  return gathered;
}

absl::Status CheckFinite(absl::Span<const Field> fields) {
  for (const Field& field : fields) {
    if (!IsFloating(field.values.dtype())) continue;
    const int64_t count = field.values.num_elements();
    int64_t bad = count;
    double value = 0;
    VisitValues(field.values, [&](const auto* values) {
      bad = std::find_if(values, values + count, [](auto v) { return !std::isfinite(AsDouble(v)); }) - values;
      if (bad < count) value = AsDouble(values[bad]);
    });
    if (bad < count) {
      const int64_t row = RowSize(field.values);
      return InvalidArgument("field '", field.name, "' of sample ", bad / row, ", column ", bad % row, " is ", value,
                             ", expected a finite number");
    }
  }
  return absl::OkStatus();
}

}  // namespace gemmill
