// What surrounds an op where the user writes it: the caller's place, and scopes held on this thread's stack. A scope is
// an object: it holds from its construction to its destruction, and scopes nest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "gemmill/runtime/origin.h"

namespace gemmill {

// Ops inside have no gradient: values only, and nothing is kept for a backward pass.
class NoGradScope {
 public:
  explicit NoGradScope(bool enter = true);
  ~NoGradScope();
  NoGradScope(const NoGradScope&) = delete;
  NoGradScope& operator=(const NoGradScope&) = delete;

 private:
  bool before_;
};
bool GradEnabled();

// Ops inside belong to layer `name`, within the layers around it.
class LayerScope {
 public:
  explicit LayerScope(absl::string_view name);
  // Makes `path` the whole path: for gradients, whose ops belong to the layer of the op that they are the gradient of.
  static LayerScope Path(absl::string_view path, GemmRole role) { return LayerScope(path, role); }
  ~LayerScope();
  LayerScope(const LayerScope&) = delete;
  LayerScope& operator=(const LayerScope&) = delete;

 private:
  LayerScope(absl::string_view path, GemmRole role);
  std::string before_;
  GemmRole role_before_;
};
const std::string& CurrentLayer();
GemmRole CurrentRole();

// Ops inside are named by `caller`, not by the lines that write them: for code whose user is to see the line of their
// own, as layers, losses and gradient rules have it. Inside another CallerScope the outer one stays.
class CallerScope {
 public:
  explicit CallerScope(Caller caller);
  // Ends any that is around: a user's own rule is named by its own lines.
  static CallerScope None() { return CallerScope(nullptr); }
  ~CallerScope();
  CallerScope(const CallerScope&) = delete;
  CallerScope& operator=(const CallerScope&) = delete;

 private:
  explicit CallerScope(std::nullptr_t);
  Caller caller_;
  const Caller* before_;
};
// The scope's caller, or `written` where there is none.
Caller CurrentCaller(Caller written);

// Each op's floating outputs are looked at; the first NaN or infinity is an error that names the op, its layer and its
// inputs' ranges. For finding faults: it reads every value once more.
class CheckNumericsScope {
 public:
  explicit CheckNumericsScope(bool check = true);
  ~CheckNumericsScope();
  CheckNumericsScope(const CheckNumericsScope&) = delete;
  CheckNumericsScope& operator=(const CheckNumericsScope&) = delete;

 private:
  bool before_;
};
bool CheckNumericsEnabled();

}  // namespace gemmill
