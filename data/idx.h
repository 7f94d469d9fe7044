// IDX, the format of MNIST and its relatives: 0, 0, a type, the number of dimensions, each dimension as a big-endian
// u32, then the values, big-endian. Files are taken as hostile: every length is checked before it is used, and one that
// the bytes of the file cannot back takes no memory.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gemmill/data/dataset.h"
#include "gemmill/runtime/tensor.h"

namespace gemmill {

// A file, plain or gzipped (told by its first bytes, not by its name). u8, i32, f32 and f64 keep their dtype; i8 and
// i16 become i32. Errors begin with the path, then say which part of the file is wrong.
absl::StatusOr<Tensor> ReadIdx(const std::string& path);

// The same from bytes in memory; errors begin with `name`.
absl::StatusOr<Tensor> ParseIdx(absl::string_view bytes, absl::string_view name);

enum class Split { kTrain, kTest };

struct IdxOptions {
  int64_t classes = 0;  // if not 0, labels beyond 0, ..., classes - 1 are an error
};

// The images and labels of `directory` under MNIST's names: {train,t10k}-images-idx3-ubyte and
// {train,t10k}-labels-idx1-ubyte, each as it is or with .gz. Fields: "x" [samples, pixels], u8 normalised by 1/255
// when they go into a batch and all others f32, their numbers unchanged, and "label" i64 [samples].
absl::StatusOr<Dataset> LoadIdxDirectory(const std::string& directory, Split split, const IdxOptions& options = {});

}  // namespace gemmill
