#include "gemmill/runtime/comm/communicator.h"

#include <algorithm>
#include <array>
#include <string>

#include "gemmill/runtime/status.h"

namespace gemmill {

absl::Status Agree(Communicator& communicator, const absl::Status& mine) {
  const int64_t world = communicator.world();
  // The lowest failed rank has the largest number.
  int64_t failed = mine.ok() ? 0 : world - communicator.rank();
  GM_RETURN_IF_ERROR(communicator.AllReduce(absl::MakeSpan(&failed, 1), ReduceOp::kMax));
  if (failed == 0) return absl::OkStatus();
  const int64_t root = world - failed;
  std::array<char, 512> told = {};
  if (communicator.rank() == root) {
    const absl::string_view message = mine.message();
    std::copy_n(message.begin(), std::min(message.size(), told.size() - 1), told.begin());
  }
  GM_RETURN_IF_ERROR(communicator.Broadcast(absl::MakeSpan(told), root));
  if (!mine.ok()) return mine;
  return absl::AbortedError(absl::StrCat("rank ", root, " of ", world, " failed: ", std::string(told.data())));
}

}  // namespace gemmill
