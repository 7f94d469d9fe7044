// The flags of a training run, kept in its checkpoints: a resumed run takes those that it is not given from there, and
// refuses those that would make it another training.
#pragma once

#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"

namespace gemmill::examples {

// The names of the flags that the command line gives, as "--name value", "--name=value" or "--noname". To be asked
// before ParseFlags.
std::set<std::string> GivenFlags(int argc, char** argv);

// The present values of flags as JSON.
std::string FlagsText(std::initializer_list<absl::Span<const char* const>> names);

// Sets flags that are not given to what a checkpoint has for them, and compares those that are.
class ResumedFlags {
 public:
  // `stored`: FlagsText of the run that wrote `path`.
  ResumedFlags(const std::string& stored, const std::string& path, const std::set<std::string>& given);

  void MustBeTheSame(const char* name);
  void MayGrow(const char* name);  // a whole number
  void MayDiffer(const char* name);

  // An error that names every flag that must not be what it is, with both values.
  absl::Status status() const;
  // Whether it was given another value than the stored one.
  bool Differs(const std::string& name) const { return differing_.count(name) > 0; }

 private:
  // The stored value, or nothing where the flag has it now.
  std::optional<std::string> OtherValue(const char* name);

  nlohmann::json stored_;
  std::string path_;
  std::set<std::string> given_;
  std::set<std::string> differing_;
  std::vector<std::string> faults_;
};

}  // namespace gemmill::examples
