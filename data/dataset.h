// Dataset: samples held in memory as named fields, and what turns some of them into the tensors of a batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gemmill/runtime/tensor.h"

namespace gemmill {

// Named values; dimension 0 is the sample.
struct Field {
  std::string name = {};
  Tensor values = {};
};

// The values of the field called `name`, or an error that lists the names there are.
absl::StatusOr<Tensor> FindField(absl::Span<const Field> fields, absl::string_view name);

// What samples are made of by the time they reach a batch: (stored value - shift) * scale, in f32 (f64 where f64 is
// stored). One shift and scale for the whole field, or one for each element of a sample. Empty: values stay as stored.
struct Normalization {
  std::vector<double> shift = {};
  std::vector<double> scale = {};

  static Normalization Scale(double factor) { return {{0}, {factor}}; }
  bool empty() const { return scale.empty(); }
};

// What a Loader reads from. Gather is called from the Loader's thread; what it throws is the batch's error.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual int64_t size() const = 0;
  // The samples at `index`, in that order, as they go into a batch. `index` may be empty: fields of 0 samples.
  virtual absl::StatusOr<std::vector<Field>> Gather(absl::Span<const int64_t> index) const = 0;
};

struct DatasetOptions {
  // Refuse NaN and infinity in floating fields (CheckFinite).
  bool check_finite = true;
  // What the labels 0, 1, ... stand for, if they have names; all differ.
  std::vector<std::string> class_names = {};
};

// A value: immutable, and copies share their bytes.
class Dataset final : public SampleSource {
 public:
  // At least one field and one sample; field names differ and sample counts agree; bytes lie on the CPU.
  static absl::StatusOr<Dataset> Create(std::vector<Field> fields, DatasetOptions options = {});

  int64_t size() const override { return fields_[0].values.shape()[0]; }
  const std::vector<Field>& fields() const { return fields_; }
  // The values as stored, not normalised.
  absl::StatusOr<Tensor> field(absl::string_view name) const { return FindField(fields_, name); }

  const std::vector<std::string>& class_names() const { return class_names_; }
  // How many classes an integer field of labels has: as many as there are class names, else its largest label + 1. A
  // split that lacks the last class has too few: ask the training set.
  absl::StatusOr<int64_t> NumClasses(absl::string_view label = "label") const;

  // This data set with `normalization` in place of what field `name` had.
  absl::StatusOr<Dataset> WithNormalization(absl::string_view name, Normalization normalization) const;
  absl::StatusOr<Normalization> normalization(absl::string_view name) const;

  // Copies of the samples start, ..., stop - 1, or of those at `index`, which may repeat.
  absl::StatusOr<Dataset> Slice(int64_t start, int64_t stop) const;
  absl::StatusOr<Dataset> Subset(absl::Span<const int64_t> index) const;

  absl::StatusOr<std::vector<Field>> Gather(absl::Span<const int64_t> index) const override;

 private:
  Dataset() = default;
  absl::Status CheckIndex(absl::Span<const int64_t> index) const;

  std::vector<Field> fields_;
  std::vector<Normalization> normalizations_;  // one per field
  std::vector<std::string> class_names_;
};

// OK, or an error that names field, sample and column of the first NaN or infinity.
absl::Status CheckFinite(absl::Span<const Field> fields);

}  // namespace gemmill
