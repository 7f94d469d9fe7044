// Errors as values: no exception crosses Gemmill's API. Short makers of absl::Status with a message built from parts,
// and the two macros that pass an error on.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace gemmill {

// What the caller gave is wrong whatever the state of the world.
template <typename... Parts>
absl::Status InvalidArgument(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// A value (an index, a label) lies outside what is allowed.
template <typename... Parts>
absl::Status OutOfRange(const Parts&... parts) {
  return absl::OutOfRangeError(absl::StrCat(parts...));
}

// `status` with `parts` put before its message; an OK status stays OK.
template <typename... Parts>
absl::Status Annotate(const absl::Status& status, const Parts&... parts) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(parts..., status.message()));
}

// fn(), which returns a Status or StatusOr, with what is thrown inside it made an error: of standard containers that
// grow with what a user or a file asks for, and of a user's code on a thread of ours.
template <typename Fn>
auto CatchExceptions(Fn&& fn) -> decltype(fn()) {
  constexpr char kNoMemory[] = "the system has no memory left for this";
  try {
    return fn();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(kNoMemory);
  } catch (const std::length_error&) {  // of a container asked for more than it can ever hold
    return absl::ResourceExhaustedError(kNoMemory);
  } catch (const std::exception& thrown) {
    return absl::InternalError(absl::StrCat("an exception was thrown: ", thrown.what()));
  } catch (...) {
    return absl::InternalError("an exception was thrown that is no std::exception");
  }
}

}  // namespace gemmill

#define GM_CONCAT_INNER(a, b) a##b
#define GM_CONCAT(a, b) GM_CONCAT_INNER(a, b)

#define GM_RETURN_IF_ERROR(expression)                            \
  do {                                                            \
    if (absl::Status gm_status = (expression); !gm_status.ok()) { \
      return gm_status;                                           \
    }                                                             \
  } while (false)

// GM_ASSIGN_OR_RETURN(Tensor t, Tensor::Empty(spec)): assigns the value, or returns the error from this function.
#define GM_ASSIGN_OR_RETURN(declaration, expression) \
  GM_ASSIGN_OR_RETURN_INNER(GM_CONCAT(gm_status_or_, __LINE__), declaration, expression)
#define GM_ASSIGN_OR_RETURN_INNER(temporary, declaration, expression) \
  auto temporary = (expression);                                      \
  if (!temporary.ok()) return temporary.status();                     \
  declaration = *std::move(temporary)
