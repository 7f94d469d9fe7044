#include "gemmill/data/byte_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "gemmill/runtime/status.h"

namespace gemmill {

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return absl::ErrnoToStatus(errno, path);
  std::string bytes;
  const absl::Status status = CatchExceptions([&] {
    std::vector<char> chunk(1 << 18);
    while (true) {
      const ssize_t got = read(file, chunk.data(), chunk.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return absl::ErrnoToStatus(errno, path);
      if (got == 0) return absl::OkStatus();
      bytes.append(chunk.data(), static_cast<size_t>(got));
    }
  });
  close(file);
  // An error of the system's begins with the path already.
  if (absl::IsResourceExhausted(status)) return Annotate(status, path, ": ");
  if (!status.ok()) return status;
  return bytes;
}

bool IsGzip(absl::string_view bytes) { return bytes.size() >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b'; }

class ByteStream::Inflater {
 public:
  Inflater() { ready_ = inflateInit2(&stream_, 15 + 16) == Z_OK; }
  ~Inflater() { inflateEnd(&stream_); }

  // Unpacks from the front of `rest`, which shrinks by what was used.
  absl::StatusOr<int64_t> Read(absl::string_view& rest, char* out, int64_t count) {
    if (!ready_) return absl::ResourceExhaustedError("zlib has no memory");
    int64_t done = 0;
    while (done < count && !ended_) {
      // zlib counts in 32 bits.
      const uInt in = static_cast<uInt>(std::min<size_t>(rest.size(), 1 << 30));
      const uInt room = static_cast<uInt>(std::min<int64_t>(count - done, 1 << 30));
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest.data()));
      stream_.avail_in = in;
      stream_.next_out = reinterpret_cast<Bytef*>(out + done);
      stream_.avail_out = room;
      const int code = inflate(&stream_, Z_NO_FLUSH);
      rest.remove_prefix(in - stream_.avail_in);
      done += room - stream_.avail_out;
      if (code == Z_STREAM_END) {
        // A gzip file may be several, one after another.
        ended_ = rest.empty();
        if (!ended_ && !IsGzip(rest)) return InvalidArgument("gzip data is followed by ", rest.size(), " other bytes");
        inflateReset(&stream_);
      } else if (code == Z_BUF_ERROR && rest.empty()) {
        return InvalidArgument("gzip data is truncated");
      } else if (code != Z_OK) {
        return InvalidArgument("gzip data is corrupt: ", stream_.msg != nullptr ? stream_.msg : zError(code));
      }
    }
    return done;
  }

 private:
  z_stream stream_ = {};
  bool ready_ = false;
  bool ended_ = false;
};

ByteStream::ByteStream(absl::string_view bytes)
    : rest_(bytes), inflater_(IsGzip(bytes) ? std::make_unique<Inflater>() : nullptr) {}

ByteStream::~ByteStream() = default;

absl::StatusOr<int64_t> ByteStream::Read(char* out, int64_t count) {
  if (inflater_ != nullptr) return inflater_->Read(rest_, out, count);
  const size_t taken = std::min(rest_.size(), static_cast<size_t>(count));
  if (taken > 0) std::memcpy(out, rest_.data(), taken);
  rest_.remove_prefix(taken);
  return static_cast<int64_t>(taken);
}

int64_t ByteStream::AtMost() const {
  const int64_t rest = static_cast<int64_t>(rest_.size());
  if (inflater_ == nullptr) return rest;
  // Deflate's shortest code for its longest match, 258 bytes, is 2 bits: 1,032 bytes from one. What zlib has taken in
  // and not yet given out is a few such bytes.
  return (rest + 64) * 1032;
}

}  // namespace gemmill
