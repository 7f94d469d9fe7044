#include "gemmill/autograd/context.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gemmill {
namespace {

thread_local bool no_grad = false;
thread_local bool check_numerics = false;
thread_local const TrainingScope* training = nullptr;
thread_local std::string layer;  // NOLINT(runtime/string): one per thread, destroyed with it
thread_local GemmRole role = GemmRole::kForward;
thread_local const Caller* scope_caller = nullptr;

}  // namespace

std::string Caller::ToString() const {
  const char* slash = std::strrchr(file, '/');
  return absl::StrCat(slash == nullptr ? file : slash + 1, ":", line);
}

const char* RoleName(GemmRole gemm_role) {
  static constexpr const char* kNames[] = {"forward", "dgrad", "wgrad"};
  return kNames[static_cast<int>(gemm_role)];
}

std::string Origin::ToString() const {
  return absl::StrCat(caller.ToString(), layer.empty() ? "" : ", layer ", layer,
                      role == GemmRole::kForward ? "" : absl::StrCat(" (", RoleName(role), ")"));
}

NoGradScope::NoGradScope(bool enter) : before_(no_grad) { no_grad = enter; }
NoGradScope::~NoGradScope() { no_grad = before_; }
bool GradEnabled() { return !no_grad; }

TrainingScope::TrainingScope(const RandomInputs& random) : random_(random), before_(training) { training = this; }
TrainingScope::~TrainingScope() { training = before_; }
const RandomInputs* TrainingRandom() { return training == nullptr ? nullptr : &training->random_; }

LayerScope::LayerScope(absl::string_view name) : before_(layer), role_before_(role) {
  if (!name.empty()) absl::StrAppend(&layer, layer.empty() ? "" : ".", name);
}
LayerScope::LayerScope(absl::string_view path, GemmRole gemm_role)
    : before_(std::exchange(layer, std::string(path))), role_before_(std::exchange(role, gemm_role)) {}
LayerScope::~LayerScope() {
  layer = std::move(before_);
  role = role_before_;
}
const std::string& CurrentLayer() { return layer; }
GemmRole CurrentRole() { return role; }

CallerScope::CallerScope(Caller caller) : caller_(caller), before_(scope_caller) {
  if (scope_caller == nullptr) scope_caller = &caller_;
}
CallerScope::CallerScope(std::nullptr_t) : before_(scope_caller) { scope_caller = nullptr; }
CallerScope::~CallerScope() { scope_caller = before_; }
Caller CurrentCaller(Caller written) { return scope_caller == nullptr ? written : *scope_caller; }

CheckNumericsScope::CheckNumericsScope(bool check) : before_(check_numerics) { check_numerics = check; }
CheckNumericsScope::~CheckNumericsScope() { check_numerics = before_; }
bool CheckNumericsEnabled() { return check_numerics; }

}  // namespace gemmill
