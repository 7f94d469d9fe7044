#include "gemmill/autograd/context.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace gemmill {
namespace {

thread_local bool no_grad = false;
thread_local bool check_numerics = false;
thread_local std::string layer;  // NOLINT(runtime/string): one per thread, destroyed with it
thread_local GemmRole role = GemmRole::kForward;
thread_local const Caller* scope_caller = nullptr;

}  // namespace

NoGradScope::NoGradScope(bool enter) : before_(no_grad) { no_grad = enter; }
NoGradScope::~NoGradScope() { no_grad = before_; }
bool GradEnabled() { return !no_grad; }

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
