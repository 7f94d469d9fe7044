#include "gemmill/runtime/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

absl::Status CannotWrite(const std::string& path) {
  return InvalidArgument("cannot write ", path, ": ", std::strerror(errno));
}

bool WriteAll(int file, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

void SyncDirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int file = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;
  fsync(file);
  close(file);
}

}  // namespace

absl::Status WriteFile(const std::string& path, absl::string_view bytes) {
  struct stat there;
  const bool exists = stat(path.c_str(), &there) == 0;
  if (exists && !S_ISREG(there.st_mode)) {
    const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    const bool done = file >= 0 && WriteAll(file, bytes);
    const absl::Status status = done ? absl::OkStatus() : CannotWrite(path);
    if (file >= 0) close(file);
    return status;
  }
  std::string temporary = path + ".XXXXXX";
  const int file = mkstemp(temporary.data());
  if (file < 0) return CannotWrite(path);
  // mkstemp's files are for their owner alone; ours are as any other, or as the one that is replaced.
  const mode_t mask = umask(0);
  umask(mask);
  const bool written =
      fchmod(file, exists ? there.st_mode & 07777 : 0666 & ~mask) == 0 && WriteAll(file, bytes) && fsync(file) == 0;
  absl::Status status = written ? absl::OkStatus() : CannotWrite(path);
  if (close(file) != 0 && status.ok()) status = CannotWrite(path);
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) status = CannotWrite(path);
  if (!status.ok()) {
    std::remove(temporary.c_str());
    return status;
  }
  SyncDirectoryOf(path);
  return absl::OkStatus();
}

}  // namespace gemmill
