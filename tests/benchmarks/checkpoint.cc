// What a checkpoint costs beside a plain write and fsync of the same bytes, and reading it beside a plain read, in turn
// in one run.
//   build/tests/benchmarks/checkpoint [--json FILE] [--directory DIR] [--megabytes N]
// prints a table and writes {"bytes", "write_seconds", "plain_write_seconds", "write_ratio", "read_seconds",
// "plain_read_seconds", "read_ratio"}: medians, of 100 MB in the working directory by default.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "gemmill/runtime/file.h"
#include "gemmill/runtime/safetensors.h"
#include "nlohmann/json.hpp"
#include "tests/benchmarks/workload.h"

namespace gemmill {
namespace {

constexpr int kRepetitions = 15;

double Seconds(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Median(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

// 1 MB each, of bytes that no disk can pack.
std::vector<NamedTensor> Tensors(int64_t megabytes) {
  std::vector<NamedTensor> tensors;
  uint64_t random = 1;
  for (int64_t i = 0; i < megabytes; ++i) {
    std::vector<int64_t> values(125'000);
    for (int64_t& value : values) {
      random ^= random << 13;
      random ^= random >> 7;
      random ^= random << 17;
      value = static_cast<int64_t>(random);
    }
    const auto count = static_cast<int64_t>(values.size());
    tensors.push_back({absl::StrCat("tensor", i), Check(Tensor::From(values, {count}))});
  }
  return tensors;
}

void Require(bool done, const std::string& path) {
  if (!done) Check(absl::ErrnoToStatus(errno, path));
}

void PlainWrite(const std::string& path, const std::vector<char>& bytes) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  Require(file >= 0, path);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t written = write(file, bytes.data() + done, bytes.size() - done);
    Require(written > 0, path);
    done += static_cast<size_t>(written);
  }
  Require(fsync(file) == 0 && close(file) == 0, path);
}

void PlainRead(const std::string& path, std::vector<char>& bytes) {
  const InputFile file = Check(InputFile::Open(path));
  bytes.resize(static_cast<size_t>(file.size()));
  Check(file.Read(0, bytes.data(), file.size()));
}

int Main(int argc, char** argv) {
  std::string json_path;
  std::string directory = ".";
  int64_t megabytes = 100;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const std::string value = i + 1 < argc ? argv[++i] : "";
    const bool known = flag == "--json" || flag == "--directory" || flag == "--megabytes";
    if (!known || value.empty() || (flag == "--megabytes" && (!absl::SimpleAtoi(value, &megabytes) || megabytes < 1))) {
      std::fprintf(stderr, "error: %s: usage: checkpoint [--json FILE] [--directory DIR] [--megabytes N]\n",
                   flag.c_str());
      return 1;
    }
    if (flag == "--json") json_path = value;
    if (flag == "--directory") directory = value;
  }
  const std::vector<NamedTensor> tensors = Tensors(megabytes);
  const std::string path = directory + "/checkpoint.safetensors";
  const std::string plain_path = directory + "/checkpoint.plain";
  std::vector<char> bytes;
  std::vector<double> write, plain_write, read, plain_read;
  Check(WriteSafetensors(path, tensors));
  PlainRead(path, bytes);
  PlainWrite(plain_path, bytes);
  for (int i = 0; i < kRepetitions; ++i) {
    write.push_back(Seconds([&] { Check(WriteSafetensors(path, tensors)); }));
    plain_write.push_back(Seconds([&] { PlainWrite(plain_path, bytes); }));
    read.push_back(Seconds([&] {
      const Safetensors file = Check(Safetensors::Open(path));
      std::vector<Tensor> values;
      for (const SafetensorsEntry& entry : file.entries()) values.push_back(Check(file.Read(entry.name)));
    }));
    plain_read.push_back(Seconds([&] { PlainRead(plain_path, bytes); }));
  }
  unlink(path.c_str());
  unlink(plain_path.c_str());
  const nlohmann::json result = {{"bytes", bytes.size()},
                                 {"write_seconds", Median(write)},
                                 {"plain_write_seconds", Median(plain_write)},
                                 {"write_ratio", Median(write) / Median(plain_write)},
                                 {"read_seconds", Median(read)},
                                 {"plain_read_seconds", Median(plain_read)},
                                 {"read_ratio", Median(read) / Median(plain_read)}};
  std::printf("%zu bytes  write %.1f ms, plain %.1f ms, ratio %.3f  read %.1f ms, plain %.1f ms, ratio %.3f\n",
              bytes.size(), Median(write) * 1e3, Median(plain_write) * 1e3, Median(write) / Median(plain_write),
              Median(read) * 1e3, Median(plain_read) * 1e3, Median(read) / Median(plain_read));
  if (!json_path.empty()) Check(WriteFile(json_path, result.dump(1) + "\n"));
  return 0;
}

}  // namespace
}  // namespace gemmill

int main(int argc, char** argv) { return gemmill::Main(argc, argv); }
