#include "gemmill/runtime/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gemmill/runtime/json.h"
#include "gemmill/runtime/memory.h"
#include "gemmill/runtime/safetensors_types.h"
#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

static_assert(std::endian::native == std::endian::little);  // as the format

constexpr int64_t kLengthBytes = 8;

// `text` as a JSON string, or an error that calls it `what`.
absl::StatusOr<std::string> JsonString(absl::string_view what, const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    return InvalidArgument(what, " '", absl::CHexEscape(text), "' is not UTF-8");
  }
}

absl::StatusOr<std::string> MetadataJson(const std::map<std::string, std::string>& metadata) {
  std::string json;
  for (const auto& [key, value] : metadata) {
    GM_ASSIGN_OR_RETURN(const std::string key_json, JsonString("the metadata's key", key));
    GM_ASSIGN_OR_RETURN(const std::string value_json, JsonString("the metadata's value", value));
    absl::StrAppend(&json, json.empty() ? "" : ",", key_json, ":", value_json);
  }
  return absl::StrCat("{", json, "}");
}

size_t TypeIndex(DType dtype) {
  const auto* type = std::find_if(std::begin(kSafetensorsTypes), std::end(kSafetensorsTypes),
                                  [&](const SafetensorsType& known) { return known.dtype == dtype; });
  return static_cast<size_t>(type - kSafetensorsTypes);
}

// The reference's order, in which every tensor is aligned to its type if the first is: by type, then by name.
std::vector<NamedTensor> InOrder(absl::Span<const NamedTensor> tensors) {
  std::vector<NamedTensor> sorted(tensors.begin(), tensors.end());
  std::sort(sorted.begin(), sorted.end(), [](const NamedTensor& a, const NamedTensor& b) {
    const size_t type_a = TypeIndex(a.tensor.dtype());
    const size_t type_b = TypeIndex(b.tensor.dtype());
    return type_a != type_b ? type_a > type_b : a.name < b.name;
  });
  return sorted;
}

absl::Status CheckNames(const std::vector<NamedTensor>& tensors) {
  std::vector<absl::string_view> names;
  for (const NamedTensor& named : tensors) {
    if (!named.tensor.valid()) return InvalidArgument("tensor '", named.name, "' is empty: it has no bytes");
    if (named.name == kSafetensorsMetadata) return InvalidArgument("no tensor can be named ", kSafetensorsMetadata);
    names.emplace_back(named.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) return InvalidArgument("two tensors are named '", *twice, "'");
  return absl::OkStatus();
}

absl::StatusOr<std::string> HeaderJson(const std::vector<NamedTensor>& tensors,
                                       const std::map<std::string, std::string>& metadata) {
  GM_RETURN_IF_ERROR(CheckNames(tensors));
  std::string json;
  if (!metadata.empty()) {
    GM_ASSIGN_OR_RETURN(const std::string metadata_json, MetadataJson(metadata));
    absl::StrAppend(&json, "\"", kSafetensorsMetadata, "\":", metadata_json);
  }
  int64_t offset = 0;
  for (const NamedTensor& named : tensors) {
    GM_ASSIGN_OR_RETURN(const std::string name, JsonString("the tensor's name", named.name));
    const int64_t end = offset + named.tensor.spec().bytes();
    absl::StrAppend(&json, json.empty() ? "" : ",", name, ":{\"dtype\":\"",
                    kSafetensorsTypes[TypeIndex(named.tensor.dtype())].name, "\",\"shape\":[",
                    absl::StrJoin(named.tensor.shape(), ","), "],\"data_offsets\":[", offset, ",", end, "]}");
    offset = end;
  }
  json = absl::StrCat("{", json, "}");
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (static_cast<int64_t>(json.size()) > kMaxSafetensorsHeader) {
    return InvalidArgument("its header would have ", json.size(), " bytes, and the format allows ",
                           kMaxSafetensorsHeader, ": give it less metadata, or fewer tensors");
  }
  return json;
}

absl::Status Write(const std::string& path, absl::Span<const NamedTensor> tensors,
                   const std::map<std::string, std::string>& metadata) {
  std::vector<NamedTensor> sorted = InOrder(tensors);
  const absl::StatusOr<std::string> header = HeaderJson(sorted, metadata);
  if (!header.ok()) return Annotate(header.status(), "cannot write ", path, ": ");
  const auto length = std::bit_cast<std::array<char, kLengthBytes>>(static_cast<uint64_t>(header->size()));
  std::vector<absl::string_view> pieces = {{length.data(), length.size()}, *header};
  for (NamedTensor& named : sorted) {
    GM_ASSIGN_OR_RETURN(named.tensor, named.tensor.To(Device::Cpu()));
    pieces.emplace_back(static_cast<const char*>(named.tensor.data()),
                        static_cast<size_t>(named.tensor.spec().bytes()));
  }
  return WriteFile(path, pieces);
}

}  // namespace

absl::StatusOr<Safetensors> Safetensors::Open(const std::string& path) {
  GM_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  if (file.size() < kLengthBytes) {
    return InvalidArgument(path, ": header length: truncated: the file has ", file.size(), " of its 8 bytes");
  }
  uint64_t length = 0;
  GM_RETURN_IF_ERROR(file.Read(0, &length, kLengthBytes));
  const int64_t rest = file.size() - kLengthBytes;
  if (length > static_cast<uint64_t>(rest)) {
    return InvalidArgument(path, ": header length: it is ", length, ", and ", rest, " bytes follow");
  }
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeader)) {
    return InvalidArgument(path, ": header length: it is ", length, ", and the format allows ", kMaxSafetensorsHeader);
  }
  const int64_t data_start = kLengthBytes + static_cast<int64_t>(length);
  return CatchExceptions([&]() -> absl::StatusOr<Safetensors> {
    std::string json(length, '\0');
    GM_RETURN_IF_ERROR(file.Read(kLengthBytes, json.data(), static_cast<int64_t>(length)));
    absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(json, file.size() - data_start);
    if (!header.ok()) return Annotate(header.status(), path, ": ");
    return Safetensors(std::move(file), data_start, *std::move(header));
  });
}

Safetensors::Safetensors(InputFile file, int64_t data_start, SafetensorsHeader header)
    : file_(std::move(file)), data_start_(data_start), header_(std::move(header)) {
  for (size_t i = 0; i < header_.entries.size(); ++i) by_name_.emplace(header_.entries[i].name, i);
}

const std::string* Safetensors::Text(const std::string& key) const {
  const auto found = header_.metadata.find(key);
  return found == header_.metadata.end() ? nullptr : &found->second;
}

const SafetensorsEntry* Safetensors::Find(absl::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.entries[found->second];
}

absl::StatusOr<const SafetensorsEntry*> Safetensors::Get(absl::string_view name) const {
  const SafetensorsEntry* entry = Find(name);
  if (entry == nullptr) return absl::NotFoundError(absl::StrCat(file_.path(), ": it has no tensor '", name, "'"));
  if (!entry->dtype.has_value()) {
    return InvalidArgument(file_.path(), ": tensor '", name, "' is ", entry->type,
                           ", a type that Gemmill has not: store it as one of F32, BF16, F64, I32, I64 and U8");
  }
  return entry;
}

absl::StatusOr<Tensor> Safetensors::Read(absl::string_view name, Device device) const {
  GM_ASSIGN_OR_RETURN(const SafetensorsEntry* entry, Get(name));
  absl::StatusOr<Tensor> tensor = Tensor::Empty({entry->shape, *entry->dtype});
  if (!tensor.ok()) return Annotate(tensor.status(), file_.path(), ": tensor '", name, "': ");
  GM_RETURN_IF_ERROR(file_.Read(data_start_ + entry->offset, tensor->data(), entry->bytes));
  return tensor->To(device);
}

absl::Status Safetensors::ReadInto(absl::string_view name, Tensor& tensor) const {
  GM_ASSIGN_OR_RETURN(const SafetensorsEntry* entry, Get(name));
  if (!tensor.valid() || entry->shape != tensor.shape() || entry->dtype != tensor.dtype()) {
    return InvalidArgument(file_.path(), ": tensor '", name, "' is ", entry->ToString(), " and cannot be read into ",
                           tensor.spec().ToString());
  }
  if (tensor.device() == Device::Cpu()) {
    tensor.buffer()->MarkWritten();
    return file_.Read(data_start_ + entry->offset, tensor.data(), entry->bytes);
  }
  GM_ASSIGN_OR_RETURN(const Tensor read, Read(name));
  return tensor.CopyFrom(read);
}

absl::Status WriteSafetensors(const std::string& path, absl::Span<const NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata) {
  // WriteFile's own errors name the path.
  return CatchExceptions([&] { return Write(path, tensors, metadata); });
}

}  // namespace gemmill
