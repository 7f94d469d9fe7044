// Runs the example programs as a user would, and looks at what they say.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/data/testing.h"

namespace gemmill {

inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::string line;
  for (char c : text) {
    if (c == '\n') lines.push_back(std::exchange(line, ""));
    if (c != '\n') line += c;
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

struct Finished {
  int exit_code = -1;  // -1: ended by a signal
  std::string output;
  std::string errors;
};

// `arguments` as a shell reads them; `by` is what runs the program, such as "timeout 3".
inline Finished RunProgram(const std::string& name, const std::string& arguments = "", const std::string& by = "") {
  const TemporaryDirectory directory;
  const std::string program = std::string(GEMMILL_BINARY_DIR) + "/examples/" + name;
  EXPECT_TRUE(std::filesystem::exists(program)) << program;
  const std::string output = directory.path() + "/output";
  const std::string errors = directory.path() + "/errors";
  const int status = std::system((by + " " + program + " " + arguments + " > " + output + " 2> " + errors).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadAll(output), ReadAll(errors)};
}

// The JSON lines of a metrics file: those of steps, of evaluations and of plans.
struct Metrics {
  std::vector<nlohmann::json> steps;
  std::vector<nlohmann::json> evaluations;
  std::vector<nlohmann::json> plans;
  std::vector<nlohmann::json> experts;

  std::vector<double> Losses() const {
    std::vector<double> losses;
    for (const nlohmann::json& step : steps) losses.push_back(step["loss"]);
    return losses;
  }
};

inline Metrics ReadMetrics(const std::string& path) {
  Metrics metrics;
  for (const std::string& line : Lines(ReadAll(path))) {
    const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(parsed.is_object()) << line;
    const std::string event = parsed.value("event", "");
    (event == "plan"      ? metrics.plans
     : event == "experts" ? metrics.experts
     : event.empty()      ? metrics.steps
                          : metrics.evaluations)
        .push_back(parsed);
  }
  return metrics;
}

}  // namespace gemmill
