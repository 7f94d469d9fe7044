// Probe: looks at a value where it is made, inside a recorded step too, where nothing else can.
//
//   h = Probe(h, "after fc1");                                  // prints "after fc1: f32[64, 512] in [-3.1, 4.2]"
//   h = Probe(h, [&](const Tensor& value) { seen.push_back(value.ToDoubles().value()); });
#pragma once

#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "gemmill/autograd/var.h"

namespace gemmill {

// x, and its gradient as it comes. `look` is called whenever the value has been computed: once where ops run at once,
// in every run of a step that was recorded, whether or not the result is used. Its Tensor is valid during the call
// alone: copy what is to be kept. What `look` throws is an error of the op.
Var Probe(Located x, std::function<void(const Tensor&)> look);

// Prints `name`, the spec and the range of the value to stderr.
Var Probe(Located x, absl::string_view name);

// "[-1.5, 3] and 2 not finite"
std::string RangeString(const Tensor& tensor);

}  // namespace gemmill
