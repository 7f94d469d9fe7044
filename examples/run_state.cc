#include "gemmill/examples/run_state.h"

#include "gemmill/runtime/json.h"

namespace gemmill::examples {
namespace {

uint64_t HashTensor(const Tensor& tensor, uint64_t hash) {
  hash = Hash(tensor.spec().ToString(), hash);
  return Hash({static_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.spec().bytes())}, hash);
}

}  // namespace

uint64_t Hash(absl::string_view bytes, uint64_t hash) {
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return hash;
}

absl::StatusOr<uint64_t> HashOf(const Dataset& dataset) {
  uint64_t hash = kHashStart;
  for (const Field& field : dataset.fields()) hash = HashTensor(field.values, Hash(field.name, hash));
  return hash;
}

absl::StatusOr<uint64_t> HashOf(const Module& model, uint64_t hash) {
  for (const NamedParameter& parameter : model.named_parameters()) {
    GM_ASSIGN_OR_RETURN(const Tensor value, parameter.value.Value());
    GM_ASSIGN_OR_RETURN(const Tensor on_host, value.To(Device::Cpu()));
    hash = HashTensor(on_host, Hash(parameter.name, hash));
  }
  return hash;
}

std::string RunState::Text() const {
  return JsonText({{"data_hash", data_hash},
                   {"schedule_first", schedule_first},
                   {"schedule_steps", schedule_steps},
                   {"loss_hash", loss_hash}},
                  -1);
}

absl::StatusOr<RunState> RunState::Parse(const std::string& text) {
  JsonFields fields(text);
  RunState run;
  fields.Take("data_hash", run.data_hash);
  fields.Take("schedule_first", run.schedule_first);
  fields.Take("schedule_steps", run.schedule_steps);
  fields.Take("loss_hash", run.loss_hash);
  fields.Require("schedule_first", run.schedule_first >= 0);
  fields.Require("schedule_steps", run.schedule_steps >= 1);
  if (fields.ok()) return run;
  return InvalidArgument("--resume: what the checkpoint says of its run has no valid ", fields.wrong(), ": ", text);
}

}  // namespace gemmill::examples
