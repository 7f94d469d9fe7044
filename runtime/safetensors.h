// Tensors by name in one file, in the safetensors format (https://github.com/huggingface/safetensors): the length of a
// JSON header, the header, and the bytes of all tensors. Files may come from anybody: the whole header is checked
// before any of it is believed, and no memory is taken that the file's own bytes do not back.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gemmill/runtime/file.h"
#include "gemmill/runtime/tensor.h"

namespace gemmill {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// What a file's header says of one tensor.
struct SafetensorsEntry {
  std::string name;
  std::string type;            // as the file has it: "F32", "F16", ...
  std::optional<DType> dtype;  // none where Gemmill has no such type
  Shape shape;
  int64_t offset = 0;  // from the beginning of the tensors' bytes, which follow the header
  int64_t bytes = 0;

  std::string ToString() const;  // "F32[512, 784]"
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsEntry> entries;  // by offset
};

// `json` is the header and `data_bytes` what follows it in the file. Everything that the format asks for holds in what
// is accepted: the entries cover the data without holes or overlaps, and each has the size of its shape and type.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json, int64_t data_bytes);

// A file that is open for reading, its header checked. The tensors stay in the file until they are read.
class Safetensors {
 public:
  // Errors begin with the path and name the field.
  static absl::StatusOr<Safetensors> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // What the metadata has under `key`; null if there is nothing.
  const std::string* Text(const std::string& key) const;
  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }  // in the order of the file
  const SafetensorsEntry* Find(absl::string_view name) const;                       // null if there is none

  // An error where there is no such tensor, or Gemmill has no such type.
  absl::StatusOr<Tensor> Read(absl::string_view name, Device device = {}) const;
  // Overwrites `tensor`, which has the shape and dtype of the one in the file. Where reading fails halfway, it holds
  // part of it.
  absl::Status ReadInto(absl::string_view name, Tensor& tensor) const;

 private:
  Safetensors(InputFile file, int64_t data_start, SafetensorsHeader header);
  // The entry, or an error that names the path.
  absl::StatusOr<const SafetensorsEntry*> Get(absl::string_view name) const;

  InputFile file_;
  int64_t data_start_;
  SafetensorsHeader header_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

// Whole or not at all, as WriteFile does; the bytes are those that the reference library writes. Names are distinct
// UTF-8, as are the metadata's keys and values.
absl::Status WriteSafetensors(const std::string& path, absl::Span<const NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace gemmill
