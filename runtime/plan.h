// Plan: where each temporary of a Program lies in one arena, found from the specs alone; no device is needed. Values
// that are never needed at the same time share bytes; a Step that may runs in place; a Reshape is another name for the
// same bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gemmill/runtime/program.h"

namespace gemmill {

struct Plan {
  // Where a value's bytes are: in the arena at `offset`, or those of the input or bound value `root`.
  struct Place {
    int root = -1;  // the number of an input's or a bound value; -1: the arena
    int64_t offset = 0;
  };
  std::vector<Place> places;               // one per value
  std::vector<int64_t> workspace_offsets;  // one per step, in the arena; -1 where it has none
  int64_t arena_bytes = 0;                 // the peak of the temporaries and workspaces, alignment included

  // What lies in the arena at its fullest step, largest first.
  struct Live {
    std::string name;  // "MatMul", "MatMul workspace"
    Origin origin;
    Spec spec;  // u8 of a workspace
    int64_t bytes = 0;
  };
  std::vector<Live> live_at_peak;
  size_t peak_step = 0;

  int64_t bound_bytes = 0;  // of the tensors from outside that the program names, each once
  int64_t input_bytes = 0;

  // Bytes that the program needs while it runs, all told.
  int64_t peak_bytes() const { return arena_bytes + bound_bytes + input_bytes; }
};

// `workspace_bytes`: what each Step's kernel asks for (WorkspaceBytes, or a model of another device). The error of
// Check where the program does not hold together.
absl::StatusOr<Plan> MakePlan(const Program& program, absl::Span<const int64_t> workspace_bytes);

// By preparing every kernel for the device of its specs. The error of Check, as above.
absl::StatusOr<std::vector<int64_t>> WorkspaceBytes(const Program& program);

// The same of a Program that Check accepts, or that differs from such a one in dimensions alone (sized_program.h).
// Without `tell_live`, live_at_peak stays empty.
Plan CheckedPlan(const Program& program, absl::Span<const int64_t> workspace_bytes, bool tell_live = true);
absl::StatusOr<std::vector<int64_t>> CheckedWorkspaceBytes(const Program& program);

// With the workspaces of those kernels.
absl::StatusOr<Plan> MakePlan(const Program& program);

// The arena's bytes and a table of what is live at its peak.
std::string PlanString(const Plan& plan, size_t most_rows = 12);

}  // namespace gemmill
