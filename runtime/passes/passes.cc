#include "gemmill/runtime/passes/passes.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace gemmill::passes {
namespace {

// Who makes and who reads each value.
class Uses {
 public:
  explicit Uses(const Program& program)
      : program_(program), readers_(program.values.size()), ready_(program.values.size(), 0) {
    for (size_t s = 0; s < program.steps.size(); ++s) {
      for (int number : program.steps[s].outputs) ready_[static_cast<size_t>(number)] = s + 1;
      for (int number : program.steps[s].inputs) readers_[static_cast<size_t>(number)].push_back(s);
    }
    // The end reads what is read after a run.
    for (int number : program.outputs) readers_[static_cast<size_t>(number)].push_back(program.steps.size());
  }

  const std::vector<size_t>& readers(int number) const { return readers_[static_cast<size_t>(number)]; }
  bool IsTemporary(int number) const {
    return program_.values[static_cast<size_t>(number)].storage == Storage::kTemporary;
  }
  // The one Step that reads a temporary, if there is just one.
  std::optional<size_t> OnlyReader(int number) const {
    const std::vector<size_t>& all = readers(number);
    if (all.size() != 1 || all[0] == program_.steps.size() || !IsTemporary(number)) return std::nullopt;
    return all[0];
  }
  // Whether the value is there before step s.
  bool IsReadyAt(int number, size_t s) const { return ready_[static_cast<size_t>(number)] <= s; }
  // Whether a step in [first, last] writes a tensor from outside: what is read there must not be read earlier.
  bool WritesOutside(size_t first, size_t last) const {
    for (size_t s = first; s <= last; ++s) {
      for (int number : program_.steps[s].outputs) {
        if (!IsTemporary(number)) return true;
      }
    }
    return false;
  }

 private:
  const Program& program_;
  std::vector<std::vector<size_t>> readers_;
  std::vector<size_t> ready_;  // the step from which on each value is there
};

Program Without(const Program& program, const std::vector<bool>& removed) {
  Program result = program;
  result.steps.clear();
  for (size_t s = 0; s < program.steps.size(); ++s) {
    if (!removed[s]) result.steps.push_back(program.steps[s]);
  }
  return result;
}

}  // namespace

Program FuseEpilogues(const Program& program) {
  const Uses uses(program);
  Program fused = program;
  std::vector<bool> removed(program.steps.size(), false);
  const auto spec = [&](int number) -> const Spec& { return program.values[static_cast<size_t>(number)].spec; };
  for (size_t s = 0; s < program.steps.size(); ++s) {
    const auto* matmul = std::get_if<op::MatMul>(&program.steps[s].op);
    if (matmul == nullptr) continue;
    op::FusedMatMul op{*matmul};
    Step step = program.steps[s];
    int result = step.outputs[0];
    size_t last = s;
    size_t place = s;
    if (const auto add = uses.OnlyReader(result); add.has_value()) {
      const Step& next = program.steps[*add];
      const auto* binary = std::get_if<op::Binary>(&next.op);
      if (binary != nullptr && binary->fn == BinaryFn::kAdd) {
        const int bias = next.inputs[next.inputs[0] == result ? 1 : 0];
        if (spec(bias).shape == Shape{spec(result).shape.back()} && spec(next.outputs[0]) == spec(result)) {
          op.bias = true;
          if (!uses.IsReadyAt(bias, s)) place = *add;
          step.inputs.push_back(bias);
          result = next.outputs[0];
          last = *add;
        }
      }
    }
    // The first function of one element that reads the sum; others may read the sum itself.
    std::optional<size_t> activation;
    for (size_t reader : uses.readers(result)) {
      if (activation.has_value() || reader == program.steps.size() || !uses.IsTemporary(result)) continue;
      if (std::holds_alternative<op::Unary>(program.steps[reader].op)) activation = reader;
    }
    step.outputs = {result};
    if (activation.has_value()) {
      const Step& next = program.steps[*activation];
      op.activation = std::get<op::Unary>(next.op).fn;
      op.keep = uses.readers(result).size() > 1;
      step.outputs = {next.outputs[0]};
      if (op.keep) step.outputs.push_back(result);
    }
    if (!op.bias && !op.activation.has_value()) continue;
    const size_t end = activation.value_or(last);
    if (uses.WritesOutside(s, end)) continue;
    removed[s] = true;
    if (op.bias) removed[last] = true;
    if (activation.has_value()) removed[*activation] = true;
    step.op = op;
    fused.steps[place] = std::move(step);
    removed[place] = false;
  }
  return Without(fused, removed);
}

Program FuseBiasGradients(const Program& program) {
  const Uses uses(program);
  Program fused = program;
  std::vector<bool> removed(program.steps.size(), false);
  for (size_t s = 0; s < program.steps.size(); ++s) {
    const auto* grad = std::get_if<op::UnaryGrad>(&program.steps[s].op);
    if (grad == nullptr) continue;
    const int dx = program.steps[s].outputs[0];
    const int64_t rank = program.values[static_cast<size_t>(dx)].spec.rank();
    for (size_t reader : uses.readers(dx)) {
      if (reader == program.steps.size()) continue;
      const auto* sum = std::get_if<op::Reduce>(&program.steps[reader].op);
      if (sum == nullptr || sum->fn != ReduceFn::kSum || sum->keepdims) continue;
      Axes rows = sum->axes;
      std::sort(rows.begin(), rows.end());
      bool all_but_last = rank >= 2 && static_cast<int64_t>(rows.size()) == rank - 1;
      for (size_t i = 0; i < rows.size(); ++i) all_but_last = all_but_last && rows[i] == static_cast<int64_t>(i);
      if (!all_but_last || (reader > s + 1 && uses.WritesOutside(s, reader))) continue;
      fused.steps[s].op = op::ActivationBiasGrad{grad->fn};
      fused.steps[s].outputs.push_back(program.steps[reader].outputs[0]);
      removed[reader] = true;
      break;
    }
  }
  return Without(fused, removed);
}

Program Default(const Program& program) { return FuseBiasGradients(FuseEpilogues(program)); }

}  // namespace gemmill::passes
