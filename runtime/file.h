// Files that are whole or not there, and files read by offset.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace gemmill {

// Writes `pieces`, one after the other, to a temporary file beside `path`, syncs it and renames it, so that whoever
// reads `path`, after a crash or a power failure too, sees the old bytes or all of the new ones. After an error the old
// bytes are there, unless it says that only the sync of the directory failed: then the new ones are, whole, and it is
// they that a power failure may take back.
//
// A replaced file keeps its mode. A symbolic link stays: what it leads to is replaced, and the temporary file lies
// there. A directory that cannot be written to is an error, even where the file in it could be. What is no regular file
// (/dev/stdout, a pipe) is written as it is.
//
// Temporary files are called "<name>.gemmill-<12 hex digits>" and are locked (flock) while they are written. Those that
// a killed process left behind have no lock, and the next WriteFile to the directory removes them.
absl::Status WriteFile(const std::string& path, absl::Span<const absl::string_view> pieces);
absl::Status WriteFile(const std::string& path, absl::string_view bytes);

// OK if WriteFile could make its temporary file: to know before the bytes are there.
absl::Status CheckCanWrite(const std::string& path);

// A regular file opened for reading, mapped into memory: what is read is copied once, and the rest of the file takes
// none. A file that has been cut short is an error; only one that is cut in the very moment of a Read, or whose disk
// fails then, ends the process (SIGBUS), as it does for every program that maps files.
class InputFile {
 public:
  static absl::StatusOr<InputFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // when it was opened
  // Bytes [offset, offset + count) into `out`.
  absl::Status Read(int64_t offset, void* out, int64_t count) const;

 private:
  struct Mapping;
  InputFile(std::string path, std::shared_ptr<const Mapping> mapping, int64_t size);

  std::string path_;
  std::shared_ptr<const Mapping> mapping_;  // shared by copies
  int64_t size_;
};

}  // namespace gemmill
