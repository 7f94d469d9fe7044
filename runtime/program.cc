#include "gemmill/runtime/program.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
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

// Of one spec.
bool SameBytes(const Tensor& a, const Tensor& b) {
  if (a.data() == b.data()) return true;
  const absl::StatusOr<Tensor> on_host[] = {a.To(Device::Cpu()), b.To(Device::Cpu())};
  if (!on_host[0].ok() || !on_host[1].ok()) return false;
  return std::memcmp(on_host[0]->data(), on_host[1]->data(), static_cast<size_t>(a.spec().bytes())) == 0;
}

const char* StorageMark(Storage storage) {
  return storage == Storage::kInput ? "input " : storage == Storage::kBound ? "bound " : "";
}

// What value number `b` is instead of what value number `a` was; empty where they are the same.
std::string ValueDifference(int a, const Value& before, int b, const Value& now) {
  if (before.spec != now.spec || before.storage != now.storage) {
    return absl::StrCat(StorageMark(now.storage), now.spec.ToString(), " instead of ", StorageMark(before.storage),
                        before.spec.ToString());
  }
  if (a != b) return absl::StrCat("value ", b, " instead of value ", a);
  if (now.storage != Storage::kBound || SameBytes(before.bound, now.bound)) return "";
  if (now.spec.num_elements() == 1) {
    const auto numbers = {now.bound.ToDoubles(), before.bound.ToDoubles()};
    if (std::all_of(numbers.begin(), numbers.end(), [](const auto& number) { return number.ok(); })) {
      return absl::StrFormat("another tensor from outside, of %.9g instead of %.9g", (**numbers.begin())[0],
                             (**(numbers.begin() + 1))[0]);
    }
  }
  return absl::StrCat("another tensor from outside, or a constant of other values, ", now.spec.ToString());
}

bool Overlap(const Tensor& a, const Tensor& b) {
  const auto begin = [](const Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.data()); };
  const auto bytes = [](const Tensor& tensor) { return static_cast<uintptr_t>(tensor.spec().bytes()); };
  return a.device() == b.device() && begin(a) < begin(b) + bytes(b) && begin(b) < begin(a) + bytes(a);
}

// For each value the one whose bytes it names: through Reshapes, whose results may be their inputs' bytes.
std::vector<int> Roots(const Program& program) {
  std::vector<int> roots(program.values.size());
  for (size_t v = 0; v < roots.size(); ++v) roots[v] = static_cast<int>(v);
  for (const Step& step : program.steps) {
    // A malformed one is refused later (Check).
    if (!std::holds_alternative<op::Reshape>(step.op) || step.inputs.size() != 1 || step.outputs.size() != 1) continue;
    int& root = roots[static_cast<size_t>(step.outputs[0])];
    if (program.values[static_cast<size_t>(root)].storage == Storage::kTemporary) {
      root = roots[static_cast<size_t>(step.inputs[0])];
    }
  }
  return roots;
}

bool Exist(const Program& program, const std::vector<int>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(),
                     [&](int number) { return number >= 0 && static_cast<size_t>(number) < program.values.size(); });
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
  const auto names = [&](const std::vector<int>& numbers) {
    return absl::StrJoin(numbers, ", ", [&](std::string* out, int number) {
      const Value& value = program.values[static_cast<size_t>(number)];
      absl::StrAppend(out, "%", number, " ", StorageMark(value.storage), value.spec.ToString());
    });
  };
  std::string text = absl::StrCat("inputs: ", names(program.inputs), "\n");
  for (const Step& step : program.steps) {
    absl::StrAppend(&text, names(step.outputs), " = ", OpString(step.op), " (", names(step.inputs), ")  ",
                    step.origin.ToString(), "\n");
  }
  absl::StrAppend(&text, "outputs: ", names(program.outputs), "\n");
  return text;
}

std::optional<std::string> FirstDifference(const Program& before, const Program& now) {
  const auto number_difference = [&](int a, int b) {
    return ValueDifference(a, before.values[static_cast<size_t>(a)], b, now.values[static_cast<size_t>(b)]);
  };
  // Of two lists of values, each called `what`.
  const auto list_difference = [&](const std::vector<int>& a, const std::vector<int>& b, const char* what) {
    if (a.size() != b.size()) return absl::StrCat("there are ", b.size(), " ", what, "s instead of ", a.size());
    for (size_t i = 0; i < a.size(); ++i) {
      const std::string difference = number_difference(a[i], b[i]);
      if (!difference.empty()) return absl::StrCat(what, " ", i, " is ", difference);
    }
    return std::string();
  };
  for (size_t s = 0; s < std::min(before.steps.size(), now.steps.size()); ++s) {
    const Step& a = before.steps[s];
    const Step& b = now.steps[s];
    std::string what;
    if (!(a.op == b.op)) {
      const std::string names[] = {OpString(a.op), OpString(b.op)};
      what =
          names[0] == names[1] ? "is an op of another class" : absl::StrCat("is ", names[1], " instead of ", names[0]);
    } else {
      what = list_difference(a.inputs, b.inputs, "input");
      if (what.empty()) what = list_difference(a.outputs, b.outputs, "output");
    }
    if (what.empty()) continue;
    return absl::StrCat("step ", s, ": ", what, ". Now it is ", StepString(now, b), "; before ", StepString(before, a));
  }
  if (before.steps.size() != now.steps.size()) {
    const bool more = now.steps.size() > before.steps.size();
    const Program& longer = more ? now : before;
    return absl::StrCat("there are ", now.steps.size(), " steps instead of ", before.steps.size(),
                        more ? "; new is " : "; missing is ",
                        StepString(longer, longer.steps[std::min(before.steps.size(), now.steps.size())]));
  }
  for (const std::string& what :
       {list_difference(before.inputs, now.inputs, "input"), list_difference(before.outputs, now.outputs, "output")}) {
    if (!what.empty()) return absl::StrCat("of the program, ", what);
  }
  return std::nullopt;
}

absl::Status Check(const Program& program) {
  for (const Step& step : program.steps) {
    if (Exist(program, step.inputs) && Exist(program, step.outputs)) continue;
    return absl::InternalError(absl::StrCat(step.origin.ToString(), ": ", OpName(step.op), " names no value"));
  }
  if (!Exist(program, program.inputs) || !Exist(program, program.outputs)) {
    return absl::InternalError("an input or output of the program is no value");
  }
  std::vector<bool> given(program.values.size(), false);
  for (int number : program.inputs) {
    if (given[static_cast<size_t>(number)] || program.values[static_cast<size_t>(number)].storage != Storage::kInput) {
      return absl::InternalError(absl::StrCat("value ", number, " is given twice, or is no input"));
    }
    given[static_cast<size_t>(number)] = true;
  }
  for (size_t v = 0; v < program.values.size(); ++v) {
    const Value& value = program.values[v];
    if (value.storage == Storage::kInput && !given[v]) {
      return absl::InternalError(absl::StrCat("value ", v, " is an input that the program does not list"));
    }
    if (value.storage != Storage::kBound || (value.bound.valid() && value.bound.spec() == value.spec)) continue;
    return absl::InternalError(absl::StrCat("value ", v, " is ", value.spec.ToString(), ", but its tensor is ",
                                            value.bound.valid() ? value.bound.spec().ToString() : "empty"));
  }
  const std::vector<int> roots = Roots(program);
  std::vector<bool> written(program.values.size());
  for (size_t v = 0; v < written.size(); ++v) written[v] = program.values[v].storage != Storage::kTemporary;
  std::vector<int> overwriting;  // the bound values that steps have written
  // Whether a bound value's bytes are by now those that a step wrote under another number.
  const auto is_overwritten = [&](int number) {
    const int root = roots[static_cast<size_t>(number)];
    const Value& value = program.values[static_cast<size_t>(root)];
    return value.storage == Storage::kBound && std::any_of(overwriting.begin(), overwriting.end(), [&](int by) {
             return by != root && Overlap(program.values[static_cast<size_t>(by)].bound, value.bound);
           });
  };
  std::vector<Spec> in, out;
  for (const Step& step : program.steps) {
    const auto fail = [&](const auto&... parts) {
      return absl::InternalError(absl::StrCat(StepString(program, step), ": ", parts...));
    };
    for (int number : step.inputs) {
      if (!written[static_cast<size_t>(number)]) return fail("value ", number, " is read before it is written");
      if (is_overwritten(number)) return fail("the old bytes of a tensor are read after a step wrote it");
    }
    const auto inferred = Infer(step.op, program.InputSpecs(step, in));
    if (!inferred.ok()) return fail(inferred.status().message());
    const Specs outputs = program.OutputSpecs(step, out);
    if (!std::equal(outputs.begin(), outputs.end(), inferred->begin(), inferred->end())) return fail("wrong outputs");
    for (int number : step.outputs) {
      const Value& value = program.values[static_cast<size_t>(number)];
      if (value.storage == Storage::kTemporary && written[static_cast<size_t>(number)]) {
        return fail("value ", number, " is written twice");
      }
      written[static_cast<size_t>(number)] = true;
      if (value.storage == Storage::kBound) overwriting.push_back(number);
      if (value.storage == Storage::kInput) return fail("an input is written");
    }
  }
  for (int number : program.outputs) {
    if (!written[static_cast<size_t>(number)]) {
      return absl::InternalError(absl::StrCat("value ", number, " is an output, but no step writes it"));
    }
    if (is_overwritten(number)) {
      return absl::InternalError(absl::StrCat("value ", number, " is an output whose bytes a step overwrites"));
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
  const std::vector<int> roots = Roots(program);
  const auto is_there = [&](int of) {
    const Value& root = program.values[static_cast<size_t>(roots[static_cast<size_t>(of)])];
    return root.storage == Storage::kBound && Overlap(root.bound, destination);
  };
  if (is_there(number)) {
    const Tensor& bound = program.values[static_cast<size_t>(roots[static_cast<size_t>(number)])].bound;
    if (bound.data() == destination.data()) return absl::OkStatus();
    return InvalidArgument("output ", output, " is a part of its destination");
  }
  for (size_t other = 0; other < program.outputs.size(); ++other) {
    if (other == output || !is_there(program.outputs[other])) continue;
    return InvalidArgument("output ", output, " would overwrite output ", other, ", which is read after a run");
  }
  // The step that makes it, unless a later one, or the step itself against the op's rules, reads the old bytes.
  bool direct = value.storage == Storage::kTemporary;
  bool made = false;
  Origin origin;
  for (const Step& step : program.steps) {
    const auto place = std::find(step.outputs.begin(), step.outputs.end(), number);
    if (place != step.outputs.end()) {
      made = true;
      origin = step.origin;
    }
    if (place != step.outputs.end() && std::holds_alternative<op::Reshape>(step.op)) direct = false;  // an alias
    for (size_t i = 0; made && i < step.inputs.size(); ++i) {
      if (!is_there(step.inputs[i])) continue;
      const Value& input = program.values[static_cast<size_t>(step.inputs[i])];
      const Value& root = program.values[static_cast<size_t>(roots[static_cast<size_t>(step.inputs[i])])];
      const bool in_place = place != step.outputs.end() && input.spec == value.spec &&
                            root.bound.data() == destination.data() &&
                            MayRunInPlace(step.op, i, static_cast<size_t>(place - step.outputs.begin()));
      direct = direct && in_place;
    }
    for (int other : step.outputs) {  // somebody else writes it too
      direct = direct && (roots[static_cast<size_t>(other)] != other || !is_there(other));
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
  program.steps.push_back({op::Cast{spec.dtype}, {number}, {copy}, origin});
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
