#include "gemmill/runtime/schedule/memory_budget.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "gemmill/runtime/byte_size.h"
#include "gemmill/runtime/memory.h"
#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

constexpr double kLookEvery = 0.1;  // seconds

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

absl::StatusOr<int64_t> ReadFileBudget(const std::string& path, int64_t total) {
  std::ifstream file(path);
  std::string text(64, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size())) && !file.eof()) {
    return InvalidArgument("cannot read ", path, ", expected a file with a size such as 2GiB");
  }
  text.resize(static_cast<size_t>(file.gcount()));
  const absl::StatusOr<int64_t> bytes = ParseByteBudget(absl::StripAsciiWhitespace(text), total);
  if (!bytes.ok()) return Annotate(bytes.status(), path, ": ");
  return bytes;
}

}  // namespace

absl::StatusOr<MemoryBudget> MemoryBudget::Parse(absl::string_view text, Device device) {
  if (text.empty()) return MemoryBudget();
  const int64_t total = TotalBytes(device);
  if (absl::ConsumePrefix(&text, "@")) {
    if (text.empty()) return InvalidArgument("the memory budget \"@\" names no file, expected @FILE");
    MemoryBudget budget = From([path = std::string(text), total] { return ReadFileBudget(path, total); });
    absl::StatusOr<int64_t> first = budget.ask_();
    if (!first.ok()) return first.status();
    budget.last_ = *first;
    return budget;
  }
  GM_ASSIGN_OR_RETURN(const int64_t bytes, ParseByteBudget(text, total));
  return From([bytes] { return bytes; });
}

MemoryBudget MemoryBudget::From(std::function<absl::StatusOr<int64_t>()> bytes) {
  MemoryBudget budget;
  budget.ask_ = std::move(bytes);
  budget.last_ = std::numeric_limits<int64_t>::max();
  return budget;
}

int64_t MemoryBudget::Read(Device device, int64_t held, int64_t ranks) {
  const double now = Now();
  if (looked_at_ < 0 || now - looked_at_ >= kLookEvery) {
    looked_at_ = now;
    available_ = AvailableBytes(device) / std::max<int64_t>(ranks, 1);
    held_then_ = held;
  }
  const int64_t room = std::numeric_limits<int64_t>::max() - held_then_;
  const int64_t left = held_then_ + std::min(available_, room);
  if (ask_ == nullptr) return left;
  const absl::StatusOr<int64_t> said = ask_();
  if (said.ok()) {
    last_ = *said;
  } else if (!failing_) {
    note_ = absl::StrCat(std::string(said.status().message()), "; the budget stays as it was");
  }
  failing_ = !said.ok();
  return std::min(left, last_);
}

std::string MemoryBudget::TakeNote() { return std::exchange(note_, ""); }

int64_t MemoryReserve(int64_t budget_bytes) { return std::min(budget_bytes / 20, int64_t{256} << 20); }

}  // namespace gemmill
