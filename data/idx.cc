#include "gemmill/data/idx.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
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

// `Stored` values of the file as `Value`s of a tensor.
template <typename Stored, typename Value>
absl::StatusOr<Tensor> Decode(const std::vector<char>& bytes, const Shape& shape) {
  GM_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Empty({shape, DTypeOf<Value>::value}));
  Value* values = static_cast<Value*>(tensor.data());
  for (size_t i = 0; i < bytes.size() / sizeof(Stored); ++i) {
    // NOLINTNEXTLINE(bugprone-signed-char-misuse): IDX's i8 is a number with a sign
    values[i] = static_cast<Value>(BigEndian<Stored>(bytes.data() + i * sizeof(Stored)));
  }
  return tensor;
}

struct Type {
  unsigned char code;
  const char* name;
  int64_t bytes;
  absl::StatusOr<Tensor> (*decode)(const std::vector<char>&, const Shape&);
};

constexpr Type kTypes[] = {
    {0x08, "u8", 1, Decode<uint8_t, uint8_t>},  {0x09, "i8", 1, Decode<int8_t, int32_t>},
    {0x0B, "i16", 2, Decode<int16_t, int32_t>}, {0x0C, "i32", 4, Decode<int32_t, int32_t>},
    {0x0D, "f32", 4, Decode<float, float>},     {0x0E, "f64", 8, Decode<double, double>},
};

// `count` bytes from `stream`, or an error that calls them `part`.
absl::StatusOr<std::vector<char>> ReadPart(ByteStream& stream, int64_t count, absl::string_view part) {
  std::vector<char> bytes;
  // Doubling, so that a length that is not backed by data costs no more memory than the data does.
  while (static_cast<int64_t>(bytes.size()) < count) {
    const int64_t had = static_cast<int64_t>(bytes.size());
    const int64_t step = std::min(count - had, std::max<int64_t>(had, 1 << 16));
    bytes.resize(static_cast<size_t>(had + step));
    const absl::StatusOr<int64_t> got = stream.Read(bytes.data() + had, step);
    if (!got.ok()) return Annotate(got.status(), part, ": ");
    if (*got < step) return InvalidArgument(part, ": truncated after ", had + *got, " of ", count, " bytes");
  }
  return bytes;
}

absl::StatusOr<Tensor> Parse(absl::string_view file) {
  ByteStream stream(file);
  GM_ASSIGN_OR_RETURN(const std::vector<char> magic, ReadPart(stream, 4, "magic number"));
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
  GM_ASSIGN_OR_RETURN(const std::vector<char> dimensions, ReadPart(stream, rank * 4, "dimensions"));
  Shape shape;
  for (int64_t i = 0; i < rank; ++i) shape.push_back(BigEndian<uint32_t>(dimensions.data() + 4 * i));
  // 8 bytes an element bounds what any type takes in memory.
  const absl::StatusOr<int64_t> count = CheckedNumElements(shape, 8);
  if (!count.ok()) return Annotate(count.status(), "dimensions: ");
  if (*count == 0) return InvalidArgument("dimensions: ", ShapeString(shape), " hold no items");

  const int64_t bytes = *count * type->bytes;
  const std::string part = absl::StrCat("values (", type->name, ShapeString(shape), ")");
  GM_ASSIGN_OR_RETURN(const std::vector<char> values, ReadPart(stream, bytes, part));
  char extra;
  const absl::StatusOr<int64_t> more = stream.Read(&extra, 1);
  if (!more.ok()) return Annotate(more.status(), part, ": ");
  if (*more > 0) return InvalidArgument(part, ": trailing bytes after the ", bytes, " that belong to them");
  return type->decode(values, shape);
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
  GM_ASSIGN_OR_RETURN(const Tensor images, ReadIdx(image_path));
  GM_ASSIGN_OR_RETURN(const Tensor stored_labels, ReadIdx(label_path));
  const int64_t samples = images.shape()[0];
  if (images.shape().size() < 2) {
    return InvalidArgument(image_path, ": images: ", images.spec().ToString(), ", expected at least 2 dimensions");
  }
  GM_ASSIGN_OR_RETURN(Tensor labels, ConvertLabels(stored_labels, label_path, options.classes));
  if (samples != labels.shape()[0]) {
    return InvalidArgument(image_path, " has ", samples, " images, but ", label_path, " has ", labels.shape()[0],
                           " labels");
  }
  GM_ASSIGN_OR_RETURN(Tensor x, images.Reshaped({samples, images.num_elements() / samples}));
  absl::StatusOr<Dataset> dataset = Dataset::Create({{"x", std::move(x)}, {"label", std::move(labels)}});
  if (!dataset.ok()) return Annotate(dataset.status(), image_path, ": ");
  if (images.dtype() != DType::kU8) return dataset;
  return dataset->WithNormalization("x", Normalization::Scale(1.0 / 255));
}

}  // namespace gemmill
