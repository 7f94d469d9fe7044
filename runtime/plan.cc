#include "gemmill/runtime/plan.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_format.h"
#include "gemmill/runtime/execute.h"
#include "gemmill/runtime/memory.h"
#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

// Bytes of the arena that are needed from step `first` to step `last`.
struct Block {
  int64_t bytes = 0;
  size_t first = 0;
  size_t last = 0;
  int64_t offset = 0;
  // For reports: the value, or the workspace of a step.
  int value = -1;
  size_t step = 0;
};

class Planner {
 public:
  explicit Planner(const Program& program) : program_(program), block_of_(program.values.size(), -1) {}

  Plan Run(absl::Span<const int64_t> workspace_bytes, bool tell_live) {
    FindLastUses();
    plan_.places.resize(program_.values.size());
    for (size_t v = 0; v < program_.values.size(); ++v) {
      if (program_.values[v].storage != Storage::kTemporary) plan_.places[v].root = static_cast<int>(v);
    }
    for (size_t s = 0; s < program_.steps.size(); ++s) {
      PlaceOutputs(s);
      plan_.workspace_offsets.push_back(-1);
      if (workspace_bytes[s] <= 0) continue;
      workspaces_.push_back(blocks_.size());
      blocks_.push_back({workspace_bytes[s], s, s, 0, -1, s});
    }
    AssignOffsets();
    for (size_t v = 0; v < block_of_.size(); ++v) {
      if (block_of_[v] >= 0) plan_.places[v].offset = blocks_[static_cast<size_t>(block_of_[v])].offset;
    }
    for (size_t b : workspaces_) plan_.workspace_offsets[blocks_[b].step] = blocks_[b].offset;
    CountOutside();
    if (tell_live) TellLive();
    return std::move(plan_);
  }

 private:
  // The last step that reads each value; outputs are read after the end.
  void FindLastUses() {
    last_use_.assign(program_.values.size(), 0);
    for (size_t s = 0; s < program_.steps.size(); ++s) {
      for (int number : program_.steps[s].inputs) last_use_[static_cast<size_t>(number)] = s;
      for (int number : program_.steps[s].outputs) last_use_[static_cast<size_t>(number)] = s;
    }
    for (int number : program_.outputs) last_use_[static_cast<size_t>(number)] = program_.steps.size();
  }

  void PlaceOutputs(size_t s) {
    const Step& step = program_.steps[s];
    for (size_t o = 0; o < step.outputs.size(); ++o) {
      const size_t output = static_cast<size_t>(step.outputs[o]);
      if (program_.values[output].storage != Storage::kTemporary) continue;
      if (std::holds_alternative<op::Reshape>(step.op)) {
        const size_t input = static_cast<size_t>(step.inputs[0]);
        plan_.places[output].root = plan_.places[input].root;
        block_of_[output] = block_of_[input];
        if (block_of_[output] >= 0) Extend(block_of_[output], last_use_[output]);
        continue;
      }
      const int reused = ReusableInput(s, o);
      if (reused >= 0) {
        block_of_[output] = reused;
        Extend(reused, last_use_[output]);
        continue;
      }
      block_of_[output] = static_cast<int>(blocks_.size());
      blocks_.push_back({program_.values[output].spec.bytes(), s, last_use_[output], 0, step.outputs[o], s});
    }
  }

  void Extend(int block, size_t last) {
    size_t& until = blocks_[static_cast<size_t>(block)].last;
    until = std::max(until, last);
  }

  // The block of an input that dies with this step and whose bytes its output may take; -1 where there is none.
  int ReusableInput(size_t s, size_t o) const {
    const Step& step = program_.steps[s];
    const Spec& spec = program_.values[static_cast<size_t>(step.outputs[o])].spec;
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const size_t input = static_cast<size_t>(step.inputs[i]);
      const int block = block_of_[input];
      if (block < 0 || !MayRunInPlace(step.op, i, o) || program_.values[input].spec != spec) continue;
      // Not one that another argument, or an earlier output of this very step, needs as it was.
      bool shared = false;
      for (size_t k = 0; k < step.inputs.size(); ++k) {
        const size_t other = static_cast<size_t>(step.inputs[k]);
        shared = shared ||
                 (block_of_[other] == block && !(MayRunInPlace(step.op, k, o) && program_.values[other].spec == spec));
      }
      const bool taken = std::any_of(step.outputs.begin(), step.outputs.begin() + static_cast<int64_t>(o),
                                     [&](int other) { return block_of_[static_cast<size_t>(other)] == block; });
      if (!shared && !taken && UsedUntil(block) == s) return block;
    }
    return -1;
  }

  size_t UsedUntil(int block) const { return blocks_[static_cast<size_t>(block)].last; }

  static int64_t Rounded(int64_t bytes) {
    return (std::max<int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  }

  // Largest first, each at the lowest offset that is free while it is needed.
  void AssignOffsets() {
    std::vector<size_t> order(blocks_.size());
    for (size_t b = 0; b < order.size(); ++b) order[b] = b;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return blocks_[a].bytes > blocks_[b].bytes; });
    struct Placed {
      int64_t offset;
      int64_t end;
      size_t first;
      size_t last;
    };
    std::vector<Placed> placed;  // by offset
    placed.reserve(order.size());
    for (size_t b : order) {
      Block& block = blocks_[b];
      const int64_t bytes = Rounded(block.bytes);
      int64_t best = 0;
      for (const Placed& neighbour : placed) {
        if (neighbour.first > block.last || neighbour.last < block.first) continue;
        if (neighbour.offset - best >= bytes) break;
        best = std::max(best, neighbour.end);
      }
      block.offset = best;
      plan_.arena_bytes = std::max(plan_.arena_bytes, best + bytes);
      const Placed place{best, best + bytes, block.first, block.last};
      placed.insert(std::upper_bound(placed.begin(), placed.end(), place,
                                     [](const Placed& x, const Placed& y) { return x.offset < y.offset; }),
                    place);
    }
  }

  void TellLive() {
    std::vector<int64_t> live(program_.steps.size() + 2, 0);
    for (const Block& block : blocks_) {
      live[block.first] += Rounded(block.bytes);
      live[block.last + 1] -= Rounded(block.bytes);
    }
    int64_t now = 0;
    int64_t most = -1;
    for (size_t s = 0; s < program_.steps.size(); ++s) {
      now += live[s];
      if (now <= most) continue;
      most = now;
      plan_.peak_step = s;
    }
    for (const Block& block : blocks_) {
      if (block.first > plan_.peak_step || block.last < plan_.peak_step) continue;
      const Step& step = program_.steps[block.step];
      const Spec workspace{{block.bytes}, DType::kU8, {}};
      plan_.live_at_peak.push_back(
          {absl::StrCat(OpName(step.op), block.value < 0 ? " workspace" : ""), step.origin,
           block.value < 0 ? workspace : program_.values[static_cast<size_t>(block.value)].spec, block.bytes});
    }
    std::stable_sort(plan_.live_at_peak.begin(), plan_.live_at_peak.end(),
                     [](const Plan::Live& a, const Plan::Live& b) { return a.bytes > b.bytes; });
  }

  void CountOutside() {
    for (int number : program_.inputs) {
      plan_.input_bytes += program_.values[static_cast<size_t>(number)].spec.bytes();
    }
    std::vector<bool> named(program_.values.size(), false);
    for (const Step& step : program_.steps) {
      for (int number : step.inputs) named[static_cast<size_t>(number)] = true;
      for (int number : step.outputs) named[static_cast<size_t>(number)] = true;
    }
    for (int number : program_.outputs) named[static_cast<size_t>(number)] = true;
    std::vector<const Buffer*> buffers;
    for (size_t v = 0; v < named.size(); ++v) {
      const Value& value = program_.values[v];
      if (named[v] && value.storage == Storage::kBound) buffers.push_back(value.bound.buffer().get());
    }
    std::sort(buffers.begin(), buffers.end());
    buffers.erase(std::unique(buffers.begin(), buffers.end()), buffers.end());
    for (const Buffer* const buffer : buffers) plan_.bound_bytes += buffer->bytes();
  }

  const Program& program_;
  Plan plan_;
  std::vector<size_t> last_use_;
  std::vector<Block> blocks_;
  std::vector<int> block_of_;       // of each value in the arena; -1 of others
  std::vector<size_t> workspaces_;  // which blocks are workspaces
};

}  // namespace

absl::StatusOr<Plan> MakePlan(const Program& program, absl::Span<const int64_t> workspace_bytes) {
  GM_RETURN_IF_ERROR(Check(program));
  if (workspace_bytes.size() != program.steps.size()) {
    return InvalidArgument(workspace_bytes.size(), " workspace sizes for ", program.steps.size(), " steps");
  }
  return CheckedPlan(program, workspace_bytes);
}

Plan CheckedPlan(const Program& program, absl::Span<const int64_t> workspace_bytes, bool tell_live) {
  return Planner(program).Run(workspace_bytes, tell_live);
}

absl::StatusOr<std::vector<int64_t>> WorkspaceBytes(const Program& program) {
  GM_RETURN_IF_ERROR(Check(program));
  return CheckedWorkspaceBytes(program);
}

absl::StatusOr<std::vector<int64_t>> CheckedWorkspaceBytes(const Program& program) {
  std::vector<int64_t> bytes;
  std::vector<Spec> in, out;
  for (const Step& step : program.steps) {
    const absl::StatusOr<Kernel> kernel =
        Prepare(step.op, program.InputSpecs(step, in), program.OutputSpecs(step, out));
    if (!kernel.ok()) return Annotate(kernel.status(), StepString(program, step), ": ");
    bytes.push_back(kernel->workspace_bytes);
  }
  return bytes;
}

absl::StatusOr<Plan> MakePlan(const Program& program) {
  GM_ASSIGN_OR_RETURN(const std::vector<int64_t> workspaces, WorkspaceBytes(program));
  return CheckedPlan(program, workspaces);
}

std::string PlanString(const Plan& plan, size_t most_rows) {
  std::string text = absl::StrFormat(
      "arena %d bytes, each value aligned to %d; tensors from outside %d, inputs %d; live at the peak, step %d of "
      "%d:\n",
      plan.arena_bytes, kAlignment, plan.bound_bytes, plan.input_bytes, plan.peak_step, plan.workspace_offsets.size());
  for (size_t i = 0; i < std::min(most_rows, plan.live_at_peak.size()); ++i) {
    const Plan::Live& live = plan.live_at_peak[i];
    absl::StrAppendFormat(&text, "%14d  %-22s %-20s %s\n", live.bytes, live.name, live.spec.ToString(),
                          live.origin.ToString());
  }
  if (plan.live_at_peak.size() > most_rows) {
    absl::StrAppendFormat(&text, "                and %d more\n", plan.live_at_peak.size() - most_rows);
  }
  return text;
}

}  // namespace gemmill
