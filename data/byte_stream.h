// Bytes from outside: a file read whole, and a stream that unpacks gzip on the way.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmill {

// All bytes of a file. Errors begin with the path as given.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// Whether `bytes` begin as a gzip file does.
bool IsGzip(absl::string_view bytes);

// Reads `bytes`, which must outlive it, in order; unpacked if they are gzip. Memory is constant, whatever they unpack
// to.
class ByteStream {
 public:
  explicit ByteStream(absl::string_view bytes);
  ~ByteStream();

  // Writes the next `count` bytes to `out`, and says how many there were: fewer only at the end. An error where gzip
  // data is corrupt or truncated.
  absl::StatusOr<int64_t> Read(char* out, int64_t count);

  // No more than so many bytes can be left to read.
  int64_t AtMost() const;

 private:
  class Inflater;

  absl::string_view rest_;
  std::unique_ptr<Inflater> inflater_;  // null for plain bytes
};

}  // namespace gemmill
