#include "gemmill/runtime/replay.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "gemmill/runtime/cpu/denormals.h"
#include "gemmill/runtime/execute.h"
#include "gemmill/runtime/status.h"

namespace gemmill {

absl::Status Arena::Reserve(int64_t bytes) {
  if (buffer_ != nullptr && buffer_->bytes() >= bytes) return absl::OkStatus();
  buffer_ = nullptr;  // first, so that both need not fit at once
  ++generation_;
  GM_ASSIGN_OR_RETURN(buffer_, Buffer::Allocate(bytes, device_));
  return absl::OkStatus();
}

absl::Status Arena::Resize(int64_t bytes) {
  if (buffer_ != nullptr && buffer_->bytes() == bytes) return absl::OkStatus();
  if (buffer_ != nullptr) {
    buffer_ = nullptr;
    ++generation_;
    ReleaseKeptBytes(device_);
  }
  return Reserve(bytes);
}

absl::StatusOr<Replay> Replay::Create(Program program, std::shared_ptr<Arena> arena) {
  if (arena == nullptr) return InvalidArgument("the arena of a replay is null; make one for the program's device");
  GM_RETURN_IF_ERROR(Check(program));
  Replay replay(std::move(program), std::move(arena));
  GM_RETURN_IF_ERROR(replay.PrepareCalls());
  GM_RETURN_IF_ERROR(replay.arena_->Reserve(replay.plan_.arena_bytes));
  return replay;
}

absl::Status Replay::PrepareCalls() {
  std::vector<Spec> in, out;
  std::vector<int64_t> workspaces;
  for (const Step& step : program_.steps) {
    absl::StatusOr<Kernel> kernel = Prepare(step.op, program_.InputSpecs(step, in), program_.OutputSpecs(step, out));
    if (!kernel.ok()) return Annotate(kernel.status(), StepString(program_, step), ": ");
    workspaces.push_back(kernel->workspace_bytes);
    calls_.push_back({.kernel = *std::move(kernel), .step = calls_.size()});
  }
  plan_ = CheckedPlan(program_, workspaces);
  input_data_.resize(program_.values.size(), nullptr);
  for (size_t s = 0; s < calls_.size(); ++s) {
    Call& call = calls_[s];
    const Step& step = program_.steps[s];
    call.workspace_offset = plan_.workspace_offsets[s];
    call.first_input = numbers_.size();
    call.inputs = step.inputs.size();
    numbers_.insert(numbers_.end(), step.inputs.begin(), step.inputs.end());
    call.first_output = numbers_.size();
    call.outputs = step.outputs.size();
    numbers_.insert(numbers_.end(), step.outputs.begin(), step.outputs.end());
    for (int number : step.outputs) {
      const Value& value = program_.values[static_cast<size_t>(number)];
      if (value.storage != Storage::kBound) continue;
      Buffer* buffer = value.bound.buffer().get();
      if (std::find(written_.begin(), written_.end(), buffer) == written_.end()) written_.push_back(buffer);
    }
  }
  addresses_.resize(numbers_.size());
  // A Reshape whose result is the same bytes has nothing to do.
  std::erase_if(calls_, [&](const Call& call) {
    const Step& step = program_.steps[call.step];
    if (!std::holds_alternative<op::Reshape>(step.op)) return false;
    const Plan::Place& from = plan_.places[static_cast<size_t>(step.inputs[0])];
    const Plan::Place& to = plan_.places[static_cast<size_t>(step.outputs[0])];
    return from.root == to.root && from.offset == to.offset;
  });
  return absl::OkStatus();
}

void* Replay::Address(int number) const {
  const Plan::Place& place = plan_.places[static_cast<size_t>(number)];
  if (place.root < 0) return static_cast<char*>(arena_->buffer()->data()) + place.offset;
  const Value& root = program_.values[static_cast<size_t>(place.root)];
  return root.storage == Storage::kBound ? root.bound.data() : input_data_[static_cast<size_t>(place.root)];
}

void Replay::BindAddresses() {
  bound_generation_ = arena_->generation();
  for (size_t i = 0; i < numbers_.size(); ++i) addresses_[i] = Address(numbers_[i]);
  for (Call& call : calls_) {
    if (call.workspace_offset < 0) continue;
    call.workspace = static_cast<char*>(arena_->buffer()->data()) + call.workspace_offset;
  }
}

absl::Status Replay::SetInputs(absl::Span<const Tensor> inputs) {
  if (inputs.size() != program_.inputs.size()) {
    return InvalidArgument("a replay of ", program_.inputs.size(), " inputs was given ", inputs.size());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Spec& spec = program_.values[static_cast<size_t>(program_.inputs[i])].spec;
    if (inputs[i].valid() && inputs[i].spec() == spec) continue;
    return InvalidArgument("input ", i, " of a replay is ",
                           inputs[i].valid() ? inputs[i].spec().ToString() : "an empty Tensor", ", expected ",
                           spec.ToString());
  }
  GM_RETURN_IF_ERROR(arena_->Reserve(plan_.arena_bytes));  // another Replay's attempt to grow it may have failed
  bool moved = bound_generation_ != arena_->generation();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const size_t number = static_cast<size_t>(program_.inputs[i]);
    moved = moved || input_data_[number] != inputs[i].data();
    input_data_[number] = inputs[i].data();
  }
  if (moved) BindAddresses();
  return absl::OkStatus();
}

absl::Status Replay::Run(absl::Span<const Tensor> inputs) {
  GM_RETURN_IF_ERROR(SetInputs(inputs));
  Stream& stream = Stream::Default(arena_->device());
  const cpu::FlushDenormals flush;
  for (Buffer* buffer : written_) buffer->MarkWritten();
  auto before = std::chrono::steady_clock::time_point();
  if (watch_) before = std::chrono::steady_clock::now();
  for (const Call& call : calls_) {
    const KernelArguments arguments{absl::MakeConstSpan(addresses_).subspan(call.first_input, call.inputs),
                                    absl::MakeConstSpan(addresses_).subspan(call.first_output, call.outputs),
                                    call.workspace};
    const absl::Status done = call.kernel.run(arguments, stream);
    if (!done.ok()) {
      const Step& step = program_.steps[call.step];
      return Annotate(done, step.origin.ToString(), ": ", OpName(step.op), ": ");
    }
    if (watch_) {
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - before;
      watch_(program_, call.step, taken.count());
      before = std::chrono::steady_clock::now();
    }
  }
  return absl::OkStatus();
}

Tensor Replay::output(size_t i) const {
  if (i >= program_.outputs.size() || bound_generation_ != arena_->generation()) return Tensor();
  const int number = program_.outputs[i];
  const Value& value = program_.values[static_cast<size_t>(number)];
  if (value.storage == Storage::kBound) return value.bound;
  return Tensor::View(Address(number), value.spec);
}

}  // namespace gemmill
