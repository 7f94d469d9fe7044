#include "gemmill/runtime/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gemmill/runtime/file_calls.h"
#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

using Pieces = absl::Span<const absl::string_view>;

constexpr absl::string_view kMark = ".gemmill-";
constexpr size_t kDigits = 12;

// A descriptor whose closing has nothing to say.
class Descriptor {
 public:
  explicit Descriptor(int file) : file_(file) {}
  ~Descriptor() {
    if (file_ >= 0) close(file_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return file_; }
  int Release() { return std::exchange(file_, -1); }

 private:
  int file_;
};

template <typename Call>
auto Uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

absl::Status CannotWrite(const std::string& path, absl::string_view what = "") {
  const int error = errno;
  const char* advice = error == ENOSPC || error == EDQUOT ? "; free some space, or write to another place" : "";
  const absl::Status status = absl::ErrnoToStatus(error, absl::StrCat("cannot write ", path, what));
  return absl::Status(status.code(), absl::StrCat(status.message(), advice));
}

bool WriteAll(int file, Pieces pieces) {
  for (absl::string_view bytes : pieces) {
    while (!bytes.empty()) {
      const ssize_t written = Uninterrupted([&] { return CurrentFileCalls().write(file, bytes.data(), bytes.size()); });
      if (written == 0) errno = EIO;
      if (written <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(written));
    }
  }
  return true;
}

// Linux closes it even where it is interrupted.
bool Close(int file) { return CurrentFileCalls().close(file) == 0 || errno == EINTR; }

bool Sync(int file) {
  return Uninterrupted([file] { return CurrentFileCalls().fsync(file); }) == 0;
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
}

// Where the symbolic links at the end of `path` lead; none for what stands for an open file (/dev/stdout), which has no
// name that could be replaced.
std::optional<std::string> FollowLinks(std::string path) {
  char link[PATH_MAX];
  for (int links = 0; links < 40; ++links) {  // more than the system follows
    const ssize_t size = readlink(path.c_str(), link, sizeof(link));
    if (size <= 0) return path;
    struct statfs system = {};
    if (statfs(DirectoryOf(path).c_str(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC) return std::nullopt;
    const std::string target(link, static_cast<size_t>(size));
    path = target[0] == '/' ? target : absl::StrCat(DirectoryOf(path), target);
  }
  return path;
}

absl::Status WriteInPlace(const std::string& path, Pieces pieces) {
  Descriptor file(Uninterrupted(
      [&] { return CurrentFileCalls().open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY, 0); }));
  if (file.get() < 0 || !WriteAll(file.get(), pieces) || !Close(file.Release())) return CannotWrite(path);
  return absl::OkStatus();
}

bool IsTemporary(absl::string_view name) {
  if (name.size() <= kMark.size() + kDigits) return false;
  name.remove_prefix(name.size() - kMark.size() - kDigits);
  const absl::string_view digits = name.substr(kMark.size());
  return absl::StartsWith(name, kMark) && std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit);
}

// Whoever writes a temporary file holds its lock, so that of those of this user nobody needs one that can be locked.
void RemoveAbandoned(const std::string& directory) {
  DIR* const entries = opendir(directory.c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries)) {
    if (!IsTemporary(entry->d_name)) continue;
    const Descriptor file(openat(dirfd(entries), entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat there;
    if (file.get() >= 0 && fstat(file.get(), &there) == 0 && S_ISREG(there.st_mode) && there.st_uid == geteuid() &&
        flock(file.get(), LOCK_EX | LOCK_NB) == 0) {
      unlinkat(dirfd(entries), entry->d_name, 0);
    }
  }
  closedir(entries);
}

// A new file beside `path`, locked, whose name goes to `temporary`. A negative number is an error, in errno.
int OpenTemporary(const std::string& path, mode_t mode, std::string& temporary) {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  const uint64_t number = static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
  for (uint64_t attempt = 0; attempt < 100; ++attempt) {
    const std::string digits = absl::StrCat(absl::Hex(number + attempt, absl::kZeroPad12));
    temporary = absl::StrCat(path, kMark, digits.substr(digits.size() - kDigits));
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    const int file = Uninterrupted([&] { return CurrentFileCalls().open(temporary.c_str(), flags, mode); });
    if (file < 0 && errno == EEXIST) continue;
    if (file < 0) return file;
    // Where the file system has no locks there are none to find either: nothing is removed. The name is gone if
    // another process took the lock first, for a file that nobody needs.
    Uninterrupted([file] { return flock(file, LOCK_EX); });
    struct stat there;
    if (fstat(file, &there) == 0 && there.st_nlink > 0) return file;
    close(file);
  }
  errno = EEXIST;
  return -1;
}

}  // namespace

FileCalls& CurrentFileCalls() {
  static FileCalls calls = {[](const char* path, int flags, mode_t mode) { return open(path, flags, mode); },
                            fchmod,
                            write,
                            fsync,
                            close,
                            rename};
  return calls;
}

absl::Status WriteFile(const std::string& path, Pieces pieces) {
  const std::optional<std::string> target = FollowLinks(path);
  struct stat there;
  const bool exists = stat(path.c_str(), &there) == 0;
  if (!exists && errno != ENOENT) return CannotWrite(path);
  if (!target.has_value() || (exists && !S_ISREG(there.st_mode))) return WriteInPlace(path, pieces);

  const std::string directory_name = DirectoryOf(*target);
  const Descriptor directory(Uninterrupted(
      [&] { return CurrentFileCalls().open(directory_name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0); }));
  if (directory.get() < 0) return CannotWrite(path, ": its directory cannot be opened");
  RemoveAbandoned(directory_name);
  std::string temporary;
  // Until it has the mode of the file that it replaces, it is for its owner alone.
  Descriptor file(OpenTemporary(*target, exists ? 0600 : 0666, temporary));
  if (file.get() < 0) return CannotWrite(path, ": no temporary file can be made beside it");
  // Keeps the lock between the close, whose error counts, and the rename.
  const Descriptor lock(fcntl(file.get(), F_DUPFD_CLOEXEC, 0));
  const bool written = lock.get() >= 0 &&
                       (!exists || CurrentFileCalls().fchmod(file.get(), there.st_mode & 07777) == 0) &&
                       WriteAll(file.get(), pieces) && Sync(file.get()) && Close(file.Release());
  if (!written || CurrentFileCalls().rename(temporary.c_str(), target->c_str()) != 0) {
    absl::Status status = CannotWrite(path);
    unlink(temporary.c_str());
    return status;
  }
  // Some file systems have no sync of directories, and say so.
  if (!Sync(directory.get()) && errno != EINVAL) {
    return CannotWrite(path, " for good: it has the new bytes, but its directory could not be synced");
  }
  return absl::OkStatus();
}

absl::Status WriteFile(const std::string& path, absl::string_view bytes) { return WriteFile(path, Pieces({bytes})); }

absl::Status CheckCanWrite(const std::string& path) {
  struct stat there;
  const bool exists = stat(path.c_str(), &there) == 0;
  if (exists && S_ISDIR(there.st_mode)) return InvalidArgument("cannot write ", path, ": it is a directory");
  const std::optional<std::string> target = FollowLinks(path);
  if (!target.has_value() || (exists && !S_ISREG(there.st_mode))) return absl::OkStatus();  // written in place
  std::string temporary;
  const Descriptor file(OpenTemporary(*target, 0600, temporary));
  if (file.get() < 0) return CannotWrite(path, ": no temporary file can be made beside it");
  unlink(temporary.c_str());
  return absl::OkStatus();
}

struct InputFile::Mapping {
  Mapping(int descriptor, int64_t size) : file(descriptor), bytes(static_cast<size_t>(size)) {
    if (bytes > 0) data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  }
  ~Mapping() {
    if (bytes > 0 && data != MAP_FAILED) munmap(data, bytes);
  }

  const Descriptor file;
  const size_t bytes;
  void* data = nullptr;
};

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  // A pipe must not wait for its writer.
  const int file = Uninterrupted([&] { return open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); });
  if (file < 0) return absl::ErrnoToStatus(errno, path);
  struct stat there = {};
  const bool known = fstat(file, &there) == 0 && S_ISREG(there.st_mode);
  auto mapping = std::make_shared<const Mapping>(file, known ? there.st_size : 0);
  if (!known) return InvalidArgument(path, ": not a regular file");
  if (mapping->data == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be mapped"));
  return InputFile(path, std::move(mapping), there.st_size);
}

InputFile::InputFile(std::string path, std::shared_ptr<const Mapping> mapping, int64_t size)
    : path_(std::move(path)), mapping_(std::move(mapping)), size_(size) {}

absl::Status InputFile::Read(int64_t offset, void* out, int64_t count) const {
  struct stat now = {};
  if (fstat(mapping_->file.get(), &now) != 0) return absl::ErrnoToStatus(errno, path_);
  const int64_t end = std::min<int64_t>(now.st_size, size_);
  if (offset < 0 || offset > end || count > end - offset) {
    return InvalidArgument(path_, ": it was cut short while it was read: it ends at byte ", end);
  }
  if (count > 0) std::memcpy(out, static_cast<const char*>(mapping_->data) + offset, static_cast<size_t>(count));
  return absl::OkStatus();
}

}  // namespace gemmill
