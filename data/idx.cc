#include "gemmill/data/idx.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "gemmill/data/byte_stream.h"
#include "gemmill/data/visit.h"
#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

static_assert(std::endian::native == std::endian::little);

template <typename T>
T BigEndian(const char* bytes) {
  std::array<char, sizeof(T)> reversed;
  std::reverse_copy(bytes, bytes + sizeof(T), reversed.begin());
  return std::bit_cast<T>(reversed);
}

// `count` values of type `Stored` in the file, from number `first` on, as `Value`s of a tensor.
template <typename Stored, typename Value>
void Decode(const char* bytes, int64_t first, int64_t count, Tensor& tensor) {
  Value* values = static_cast<Value*>(tensor.data()) + first;
  for (int64_t i = 0; i < count; ++i) {
    // NOLINTNEXTLINE(bugprone-signed-char-misuse): IDX's i8 is a number with a sign
    values[i] = static_cast<Value>(BigEndian<Stored>(bytes + i * static_cast<int64_t>(sizeof(Stored))));
  }
}

struct Type {
  unsigned char code;
  const char* name;
  int64_t bytes;
  DType dtype;
  void (*decode)(const char* bytes, int64_t first, int64_t count, Tensor& tensor);
};

constexpr Type kTypes[] = {
    {0x08, "u8", 1, DType::kU8, Decode<uint8_t, uint8_t>},   {0x09, "i8", 1, DType::kI32, Decode<int8_t, int32_t>},
    {0x0B, "i16", 2, DType::kI32, Decode<int16_t, int32_t>}, {0x0C, "i32", 4, DType::kI32, Decode<int32_t, int32_t>},
    {0x0D, "f32", 4, DType::kF32, Decode<float, float>},     {0x0E, "f64", 8, DType::kF64, Decode<double, double>},
};

// The next `count` bytes, the first `had` of `total` being read, or an error that calls them `part`.
absl::Status ReadPart(ByteStream& stream, char* out, int64_t count, absl::string_view part, int64_t had,
                      int64_t total) {
  const absl::StatusOr<int64_t> got = stream.Read(out, count);
  if (!got.ok()) return Annotate(got.status(), part, ": ");
  if (*got == count) return absl::OkStatus();
  return InvalidArgument(part, ": truncated after ", had + *got, " of ", total, " bytes");
}

absl::StatusOr<std::vector<char>> ReadHeader(ByteStream& stream, int64_t count, absl::string_view part) {
  std::vector<char> bytes(static_cast<size_t>(count));
  GM_RETURN_IF_ERROR(ReadPart(stream, bytes.data(), count, part, 0, count));
  return bytes;
}

absl::StatusOr<Tensor> ReadValues(ByteStream& stream, const Type& type, const Shape& shape, absl::string_view part) {
  const int64_t total = NumElements(shape) * type.bytes;
  // A length that the file cannot back takes no memory.
  if (total > stream.AtMost()) {
    return InvalidArgument(part, ": truncated: they take ", total, " bytes, and at most ", stream.AtMost(), " follow");
  }
  absl::StatusOr<Tensor> tensor = Tensor::Empty({shape, type.dtype});
  if (!tensor.ok()) return Annotate(tensor.status(), part, ": ");
  std::vector<char> chunk(1 << 16);
  for (int64_t had = 0; had < total;) {
    const int64_t step = std::min(total - had, static_cast<int64_t>(chunk.size()));
    GM_RETURN_IF_ERROR(ReadPart(stream, chunk.data(), step, part, had, total));
    type.decode(chunk.data(), had / type.bytes, step / type.bytes, *tensor);
    had += step;
  }
  return tensor;
}

absl::StatusOr<Tensor> Parse(absl::string_view file) {
  ByteStream stream(file);
  GM_ASSIGN_OR_RETURN(const std::vector<char> magic, ReadHeader(stream, 4, "magic number"));
  if (magic[0] != 0 || magic[1] != 0) {
    return InvalidArgument("magic number: not an IDX file: it begins with bytes ",
                           absl::BytesToHexString(absl::string_view(magic.data(), 2)), ", expected 0000");
  }
  const unsigned char code = static_cast<unsigned char>(magic[2]);
  const Type* type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const Type& t) { return t.code == code; });
  if (type == std::end(kTypes)) {
    return InvalidArgument("type: byte ", static_cast<int>(code), " is none of 8 (u8), 9 (i8), 11 (i16), 12 (i32), 13 ",
                           "(f32), 14 (f64)");
  }
  const int64_t rank = static_cast<unsigned char>(magic[3]);
  if (rank == 0) return InvalidArgument("dimensions: there are 0, expected at least 1");
  GM_ASSIGN_OR_RETURN(const std::vector<char> dimensions, ReadHeader(stream, rank * 4, "dimensions"));
  Shape shape;
  for (int64_t i = 0; i < rank; ++i) shape.push_back(BigEndian<uint32_t>(dimensions.data() + 4 * i));
  // 8 bytes an element bounds what any type takes in memory.
  const absl::StatusOr<int64_t> count = CheckedNumElements(shape, 8);
  if (!count.ok()) return Annotate(count.status(), "dimensions: ");
  if (*count == 0) return InvalidArgument("dimensions: ", ShapeString(shape), " hold no items");

  const std::string part = absl::StrCat("values (", type->name, ShapeString(shape), ")");
  GM_ASSIGN_OR_RETURN(Tensor values, ReadValues(stream, *type, shape, part));
  char extra;
  const absl::StatusOr<int64_t> more = stream.Read(&extra, 1);
  if (!more.ok()) return Annotate(more.status(), part, ": ");
  if (*more > 0) {
    return InvalidArgument(part, ": trailing bytes after the ", *count * type->bytes, " that belong to them");
  }
  return values;
}

absl::StatusOr<std::string> FindIdxFile(const std::string& directory, absl::string_view name) {
  struct stat found;
  for (absl::string_view ending : {"", ".gz"}) {
    std::string path = absl::StrCat(directory, "/", name, ending);
    if (stat(path.c_str(), &found) == 0) return path;
    if (errno != ENOENT) return absl::ErrnoToStatus(errno, path);
  }
  return absl::NotFoundError(absl::StrCat(directory, " has neither ", name, " nor ", name, ".gz"));
}

// As i64 [samples], all in [0, classes) if classes is not 0.
absl::StatusOr<Tensor> ConvertLabels(const Tensor& stored, const std::string& path, int64_t classes) {
  if (stored.shape().size() != 1 || IsFloating(stored.dtype())) {
    return InvalidArgument(path, ": labels: ", stored.spec().ToString(), ", expected integers of 1 dimension");
  }
  GM_ASSIGN_OR_RETURN(Tensor labels, Tensor::Empty({stored.shape(), DType::kI64}));
  int64_t* out = static_cast<int64_t*>(labels.data());
  absl::Status status;
  VisitValues(stored, [&](const auto* values) {
    for (int64_t i = 0; i < stored.num_elements(); ++i) {
      out[i] = static_cast<int64_t>(AsDouble(values[i]));
      if (status.ok() && (out[i] < 0 || (classes > 0 && out[i] >= classes))) {
        status = OutOfRange(path, ": labels: that of sample ", i, " is ", out[i], ", expected ",
                            classes > 0 ? absl::StrCat("0 to ", classes - 1) : "0 or more");
      }
    }
  });
  if (!status.ok()) return status;
  return labels;
}

// The numbers of an image file as f32.
absl::StatusOr<Tensor> ConvertImages(const Tensor& stored, const std::string& path) {
  GM_ASSIGN_OR_RETURN(Tensor images, Tensor::Empty({stored.shape(), DType::kF32}));
  float* out = static_cast<float*>(images.data());
  const int64_t count = stored.num_elements();
  absl::Status status;
  VisitValues(stored, [&](const auto* values) {
    for (int64_t i = 0; i < count; ++i) {
      const double value = AsDouble(values[i]);
      if (std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max() && status.ok()) {
        const int64_t sample = i / (count / stored.shape()[0]);
        status = OutOfRange(path, ": images: a value of sample ", sample, " is ", value, ", too large for f32");
      }
      out[i] = static_cast<float>(value);
    }
  });
  if (!status.ok()) return status;
  return images;
}

}  // namespace

absl::StatusOr<Tensor> ParseIdx(absl::string_view bytes, absl::string_view name) {
  absl::StatusOr<Tensor> tensor = Parse(bytes);
  if (!tensor.ok()) return Annotate(tensor.status(), name, ": ");
  return tensor;
}

absl::StatusOr<Tensor> ReadIdx(const std::string& path) {
  GM_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  return ParseIdx(bytes, path);
}

absl::StatusOr<Dataset> LoadIdxDirectory(const std::string& directory, Split split, const IdxOptions& options) {
  if (options.classes < 0) return InvalidArgument("classes is ", options.classes, ", expected 0 or more");
  struct stat found;
  if (stat(directory.c_str(), &found) != 0) return absl::ErrnoToStatus(errno, directory);
  if (!S_ISDIR(found.st_mode)) return InvalidArgument(directory, " is not a directory");

  const absl::string_view prefix = split == Split::kTrain ? "train" : "t10k";
  GM_ASSIGN_OR_RETURN(const std::string image_path, FindIdxFile(directory, absl::StrCat(prefix, "-images-idx3-ubyte")));
  GM_ASSIGN_OR_RETURN(const std::string label_path, FindIdxFile(directory, absl::StrCat(prefix, "-labels-idx1-ubyte")));
  GM_ASSIGN_OR_RETURN(Tensor images, ReadIdx(image_path));
  GM_ASSIGN_OR_RETURN(const Tensor stored_labels, ReadIdx(label_path));
  if (images.shape().size() < 2) {
    return InvalidArgument(image_path, ": images: ", images.spec().ToString(), ", expected at least 2 dimensions");
  }
  const int64_t samples = images.shape()[0];
  if (samples != stored_labels.shape()[0]) {
    return InvalidArgument(image_path, " has ", samples, " images, but ", label_path, " has ", stored_labels.shape()[0],
                           " labels");
  }
  GM_ASSIGN_OR_RETURN(Tensor labels, ConvertLabels(stored_labels, label_path, options.classes));
  const bool bytes = images.dtype() == DType::kU8;
  if (!bytes && images.dtype() != DType::kF32) {
    GM_ASSIGN_OR_RETURN(images, ConvertImages(images, image_path));
  }
  GM_ASSIGN_OR_RETURN(Tensor x, images.Reshaped({samples, images.num_elements() / samples}));
  absl::StatusOr<Dataset> dataset = Dataset::Create({{"x", std::move(x)}, {"label", std::move(labels)}});
  if (!dataset.ok()) return Annotate(dataset.status(), image_path, ": ");
  if (!bytes) return dataset;
  return dataset->WithNormalization("x", Normalization::Scale(1.0 / 255));
}

}  // namespace gemmill
