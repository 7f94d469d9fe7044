#include "gemmill/runtime/program.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "gemmill/runtime/execute.h"
#include "gemmill/runtime/infer.h"
#include "gemmill/runtime/status.h"

namespace gemmill {
namespace {

std::string List(const Program& program, const std::vector<int>& numbers) {
  return absl::StrJoin(numbers, ", ", [&](std::string* out, int number) {
    absl::StrAppend(out, program.values[static_cast<size_t>(number)].spec.ToString());
  });
}

bool SameBytes(const Tensor& a, const Tensor& b) {
  if (a.data() == b.data()) return true;
  const auto of_a = a.ToDoubles();
  const auto of_b = b.ToDoubles();
  // NaNs are the same here: bits, not numbers, are compared.
  const auto same = [](double x, double y) { return x == y || (x != x && y != y); };
  return of_a.ok() && of_b.ok() && std::equal(of_a->begin(), of_a->end(), of_b->begin(), of_b->end(), same);
}

bool SameValue(const Value& a, const Value& b) {
  if (a.spec != b.spec || a.storage != b.storage) return false;
  return a.storage != Storage::kBound || SameBytes(a.bound, b.bound);
}

bool SameBuffer(const Value& value, const Tensor& tensor) {
  return value.storage == Storage::kBound && value.bound.buffer() == tensor.buffer();
}

}  // namespace

Specs Program::SpecsOf(const std::vector<int>& numbers, std::vector<Spec>& storage) const {
  storage.clear();
  for (int number : numbers) storage.push_back(values[static_cast<size_t>(number)].spec);
  return storage;
}

std::string SpecsString(const Program& program, const Step& step) {
  return absl::StrCat("(", List(program, step.inputs), ") -> ", List(program, step.outputs));
}

std::string StepString(const Program& program, const Step& step) {
  return absl::StrCat(step.origin.ToString(), ": ", OpName(step.op), " ", SpecsString(program, step));
}

std::string ProgramString(const Program& program) {
  std::string text;
  for (const Step& step : program.steps) absl::StrAppend(&text, StepString(program, step), "\n");
  return text;
}

std::optional<std::string> FirstDifference(const Program& before, const Program& now) {
  for (size_t s = 0; s < std::min(before.steps.size(), now.steps.size()); ++s) {
    const Step& a = before.steps[s];
    const Step& b = now.steps[s];
    const auto differ = [&](const std::string& what) {
      return absl::StrCat(what, ": ", StepString(now, b), "; before: ", StepString(before, a));
    };
    if (!(a.op == b.op)) return differ(absl::StrCat("step ", s, " is another op, or has other attributes"));
    if (a.inputs != b.inputs || a.outputs != b.outputs) return differ(absl::StrCat("step ", s, " has other inputs"));
    for (size_t i = 0; i < a.inputs.size(); ++i) {
      const size_t number = static_cast<size_t>(a.inputs[i]);
      if (SameValue(before.values[number], now.values[number])) continue;
      return differ(absl::StrCat("input ", i, " of step ", s, " is another tensor, or a constant of another value"));
    }
  }
  if (before.steps.size() != now.steps.size()) {
    const bool more = now.steps.size() > before.steps.size();
    const Program& longer = more ? now : before;
    return absl::StrCat("there are ", now.steps.size(), " steps instead of ", before.steps.size(),
                        more ? "; new is " : "; missing is ",
                        StepString(longer, longer.steps[std::min(before.steps.size(), now.steps.size())]));
  }
  if (before.outputs != now.outputs) return "the outputs are other values";
  return std::nullopt;
}

absl::Status Check(const Program& program) {
  std::vector<bool> written(program.values.size());
  for (size_t v = 0; v < written.size(); ++v) written[v] = program.values[v].storage != Storage::kTemporary;
  std::vector<std::pair<const Buffer*, int>> overwritten;  // buffers, and the value that holds their new bytes
  std::vector<Spec> in, out;
  for (const Step& step : program.steps) {
    const auto fail = [&](const auto&... parts) {
      return absl::InternalError(absl::StrCat(StepString(program, step), ": ", parts...));
    };
    for (int number : step.inputs) {
      const Value& value = program.values[static_cast<size_t>(number)];
      if (!written[static_cast<size_t>(number)]) return fail("value ", number, " is read before it is written");
      for (const auto& [buffer, by] : overwritten) {
        if (value.storage == Storage::kBound && value.bound.buffer().get() == buffer && by != number) {
          return fail("the old bytes of a tensor are read after a step wrote it");
        }
      }
    }
    const auto inferred = Infer(step.op, program.InputSpecs(step, in));
    if (!inferred.ok()) return fail(inferred.status().message());
    const Specs outputs = program.OutputSpecs(step, out);
    if (!std::equal(outputs.begin(), outputs.end(), inferred->begin(), inferred->end())) return fail("wrong outputs");
    for (int number : step.outputs) {
      const Value& value = program.values[static_cast<size_t>(number)];
      written[static_cast<size_t>(number)] = true;
      if (value.storage == Storage::kBound) overwritten.emplace_back(value.bound.buffer().get(), number);
      if (value.storage == Storage::kInput) return fail("an input is written");
    }
  }
  return absl::OkStatus();
}

absl::Status WriteInto(Program& program, size_t output, const Tensor& destination) {
  const int number = program.outputs[output];
  Value& value = program.values[static_cast<size_t>(number)];
  if (!destination.valid() || value.spec != destination.spec()) {
    return InvalidArgument("output ", output, " is ", value.spec.ToString(), ", its destination ",
                           destination.spec().ToString());
  }
  // The step that makes it, unless a later one, or the step itself against the op's rules, reads the old bytes.
  bool direct = value.storage == Storage::kTemporary;
  bool made = false;
  for (const Step& step : program.steps) {
    const auto place = std::find(step.outputs.begin(), step.outputs.end(), number);
    made = made || place != step.outputs.end();
    if (place != step.outputs.end() && std::holds_alternative<op::Reshape>(step.op)) direct = false;  // an alias
    for (size_t i = 0; made && i < step.inputs.size(); ++i) {
      const Value& input = program.values[static_cast<size_t>(step.inputs[i])];
      if (!SameBuffer(input, destination)) continue;
      const bool in_place = place != step.outputs.end() && input.spec == value.spec &&
                            MayRunInPlace(step.op, i, static_cast<size_t>(place - step.outputs.begin()));
      direct = direct && in_place;
    }
    for (int other : step.outputs) {  // somebody else writes it too
      direct = direct && !SameBuffer(program.values[static_cast<size_t>(other)], destination);
    }
  }
  if (direct && made) {
    value.storage = Storage::kBound;
    value.bound = destination;
    return absl::OkStatus();
  }
  const int copy = static_cast<int>(program.values.size());
  const Spec spec = value.spec;
  program.values.push_back({spec, Storage::kBound, destination});
  program.steps.push_back({op::Cast{spec.dtype}, {number}, {copy}, {}});
  program.outputs[output] = copy;
  return absl::OkStatus();
}

Program WithoutUnused(const Program& program) {
  std::vector<bool> used(program.values.size(), false);
  for (int number : program.outputs) used[static_cast<size_t>(number)] = true;
  std::vector<Step> kept;
  for (auto step = program.steps.rbegin(); step != program.steps.rend(); ++step) {
    const bool needed = std::holds_alternative<op::Custom>(step->op) ||
                        std::any_of(step->outputs.begin(), step->outputs.end(), [&](int number) {
                          return used[static_cast<size_t>(number)] ||
                                 program.values[static_cast<size_t>(number)].storage == Storage::kBound;
                        });
    if (!needed) continue;
    for (int number : step->inputs) used[static_cast<size_t>(number)] = true;
    kept.push_back(*step);
  }
  std::reverse(kept.begin(), kept.end());
  Program result = program;
  result.steps = std::move(kept);
  return result;
}

}  // namespace gemmill
