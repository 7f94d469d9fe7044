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

// Which of some tensors from outside overlap another: found by address.
class Places {
 public:
  void Add(const Tensor& tensor, int number) {
    all_.push_back({Memory(tensor), Begin(tensor), End(tensor), 0, number});
  }
  // Before Find, after the last Add.
  void Sort() {
    std::sort(all_.begin(), all_.end(), [](const Place& a, const Place& b) {
      return std::pair(a.memory, a.begin) < std::pair(b.memory, b.begin);
    });
    for (size_t i = 0; i < all_.size(); ++i) {
      const bool first = i == 0 || all_[i - 1].memory != all_[i].memory;
      all_[i].end_so_far = first ? all_[i].end : std::max(all_[i].end, all_[i - 1].end_so_far);
    }
  }
  // Calls found(number) for each that shares bytes with `tensor`.
  template <typename Found>
  void Find(const Tensor& tensor, Found found) const {
    auto place = std::lower_bound(all_.begin(), all_.end(), std::pair(Memory(tensor), End(tensor)),
                                  [](const Place& a, const auto& b) { return std::pair(a.memory, a.begin) < b; });
    while (place != all_.begin()) {
      --place;
      if (place->memory != Memory(tensor) || place->end_so_far <= Begin(tensor)) return;
      if (place->end > Begin(tensor)) found(place->number);
    }
  }

 private:
  struct Place {
    std::pair<int, int> memory;
    uintptr_t begin;
    uintptr_t end;
    uintptr_t end_so_far;  // the largest end of those that begin no later
    int number;
  };
  static std::pair<int, int> Memory(const Tensor& tensor) {
    return {static_cast<int>(tensor.device().kind), tensor.device().index};
  }
  static uintptr_t Begin(const Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.data()); }
  static uintptr_t End(const Tensor& tensor) { return Begin(tensor) + static_cast<uintptr_t>(tensor.spec().bytes()); }

  std::vector<Place> all_;
};

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
  Places outside;
  for (size_t v = 0; v < program.values.size(); ++v) {
    if (program.values[v].storage == Storage::kBound) outside.Add(program.values[v].bound, static_cast<int>(v));
  }
  outside.Sort();
  std::vector<bool> overwriting(program.values.size(), false);  // the bound values that steps have written
  // Whether a bound value's bytes are by now those that a step wrote under another number.
  const auto is_overwritten = [&](int number) {
    const int root = roots[static_cast<size_t>(number)];
    const Value& value = program.values[static_cast<size_t>(root)];
    bool found = false;
    if (value.storage != Storage::kBound) return found;
    outside.Find(value.bound, [&](int by) { found = found || (by != root && overwriting[static_cast<size_t>(by)]); });
    return found;
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
      if (value.storage == Storage::kBound) overwriting[static_cast<size_t>(number)] = true;
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
  return WriteInto(program, std::vector<Destination>{{output, destination}});
}

absl::Status WriteInto(Program& program, absl::Span<const Destination> destinations) {
  const std::vector<int> roots = Roots(program);
  const auto root_of = [&](int number) -> const Value& {
    return program.values[static_cast<size_t>(roots[static_cast<size_t>(number)])];
  };
  // The place of an output's destination among `destinations`; -1 of those that stay where they are.
  std::vector<int> destination_of(program.outputs.size(), -1);
  struct State {
    bool made = false;    // its step has been seen
    bool direct = false;  // the step may write there itself
    bool there = false;   // it lies there already
    Origin origin = {};
  };
  std::vector<State> states(destinations.size());
  std::vector<std::vector<int>> made_for(program.values.size());  // of each value, the destinations it goes to
  Places places;
  for (size_t d = 0; d < destinations.size(); ++d) {
    const auto& [output, tensor] = destinations[d];
    const int number = program.outputs[output];
    const Value& value = program.values[static_cast<size_t>(number)];
    if (!tensor.valid() || value.spec != tensor.spec()) {
      return InvalidArgument("output ", output, " is ", value.spec.ToString(), ", its destination ",
                             tensor.spec().ToString());
    }
    destination_of[output] = static_cast<int>(d);
    states[d].direct = value.storage == Storage::kTemporary;
    made_for[static_cast<size_t>(number)].push_back(static_cast<int>(d));
    places.Add(tensor, static_cast<int>(d));
  }
  places.Sort();
  absl::Status refused;
  const auto refuse = [&](size_t by, size_t other) {
    refused.Update(InvalidArgument("output ", by, " would overwrite output ", other, ", which is read after a run"));
  };
  for (size_t d = 0; d < destinations.size(); ++d) {
    places.Find(destinations[d].tensor, [&](int other) {
      if (static_cast<size_t>(other) < d)
        refuse(destinations[d].output, destinations[static_cast<size_t>(other)].output);
    });
  }
  for (size_t output = 0; output < program.outputs.size(); ++output) {
    const Value& root = root_of(program.outputs[output]);
    if (root.storage != Storage::kBound) continue;
    places.Find(root.bound, [&](int d) {
      const auto& [by, tensor] = destinations[static_cast<size_t>(d)];
      if (by != output) return refuse(by, output);
      states[static_cast<size_t>(d)].there = true;
      if (root.bound.data() != tensor.data()) {
        refused.Update(InvalidArgument("output ", output, " is a part of its destination"));
      }
    });
  }
  GM_RETURN_IF_ERROR(refused);
  // The step that makes it, unless a later one, or the step itself against the op's rules, reads the old bytes.
  for (const Step& step : program.steps) {
    for (size_t o = 0; o < step.outputs.size(); ++o) {
      for (const int d : made_for[static_cast<size_t>(step.outputs[o])]) {
        State& state = states[static_cast<size_t>(d)];
        state.made = true;
        state.origin = step.origin;
        if (std::holds_alternative<op::Reshape>(step.op)) state.direct = false;  // an alias
      }
    }
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const Value& root = root_of(step.inputs[i]);
      if (root.storage != Storage::kBound) continue;
      places.Find(root.bound, [&](int d) {
        State& state = states[static_cast<size_t>(d)];
        if (!state.made) return;
        const auto& [output, tensor] = destinations[static_cast<size_t>(d)];
        const auto made = std::find(step.outputs.begin(), step.outputs.end(), program.outputs[output]);
        const bool in_place = made != step.outputs.end() && root.bound.data() == tensor.data() &&
                              program.values[static_cast<size_t>(step.inputs[i])].spec == tensor.spec() &&
                              MayRunInPlace(step.op, i, static_cast<size_t>(made - step.outputs.begin()));
        state.direct = state.direct && in_place;
      });
    }
    for (const int other : step.outputs) {  // somebody else writes it too
      const Value& value = program.values[static_cast<size_t>(other)];
      if (value.storage != Storage::kBound) continue;
      places.Find(value.bound, [&](int d) { states[static_cast<size_t>(d)].direct = false; });
    }
  }
  for (size_t d = 0; d < destinations.size(); ++d) {
    const auto& [output, tensor] = destinations[d];
    if (states[d].there) continue;
    const int number = program.outputs[output];
    Value& value = program.values[static_cast<size_t>(number)];
    if (states[d].direct && states[d].made && value.storage == Storage::kTemporary) {
      value.storage = Storage::kBound;
      value.bound = tensor;
      continue;
    }
    const int copy = static_cast<int>(program.values.size());
    const Spec spec = value.spec;
    program.values.push_back({spec, Storage::kBound, tensor});
    program.steps.push_back({op::Cast{spec.dtype}, {number}, {copy}, states[d].origin});
    program.outputs[output] = copy;
  }
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
