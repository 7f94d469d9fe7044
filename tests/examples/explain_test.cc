// What explain prints and writes, and what it says of a command line that is wrong.
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/examples/run_program.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

// The "gemms" that a run writes.
nlohmann::json GemmsOf(const std::string& arguments) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/gemms.json";
  const Finished run = RunProgram("explain", arguments + " --json " + path);
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  const nlohmann::json json = nlohmann::json::parse(ReadAll(path), nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(json.contains("gemms")) << json;
  return json.value("gemms", nlohmann::json::array());
}

using Sizes = std::tuple<std::string, int64_t, int64_t, int64_t>;  // role, m, n, k

std::vector<Sizes> SizesOf(const nlohmann::json& gemms) {
  std::vector<Sizes> sizes;
  for (const nlohmann::json& gemm : gemms) sizes.emplace_back(gemm["role"], gemm["m"], gemm["n"], gemm["k"]);
  return sizes;
}

TEST(ExplainTest, GemmsOfAnMlp) {
  const std::string arguments = "--model mlp --sizes 784,512,512,10 --batch 256 --device h100";
  const nlohmann::json gemms = GemmsOf(arguments);
  EXPECT_EQ(gemms.size(), 8u);
  EXPECT_THAT(SizesOf(gemms), AllOf(Contains(Sizes{"forward", 512, 256, 784}), Contains(Sizes{"dgrad", 512, 256, 512}),
                                    Contains(Sizes{"wgrad", 784, 512, 256}), Contains(Sizes{"wgrad", 512, 10, 256})));
  for (const nlohmann::json& gemm : gemms) {
    EXPECT_EQ(gemm["flops"], 2 * gemm["m"].get<int64_t>() * gemm["n"].get<int64_t>() * gemm["k"].get<int64_t>());
  }
  EXPECT_THAT(SizesOf(GemmsOf(arguments + " --convention tensorflow")),
              AllOf(Contains(Sizes{"forward", 256, 512, 784}), Contains(Sizes{"wgrad", 512, 784, 256})));
}

TEST(ExplainTest, TableAndPlan) {
  const Finished run = RunProgram("explain", "--device a100");
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  EXPECT_THAT(run.output, AllOf(HasSubstr("8 GEMMs"), HasSubstr("fc1"), HasSubstr("wgrad"), HasSubstr("arena "),
                                HasSubstr("live at the peak")));
}

// Of the GEMMs of experts, the sum of what `size` says, by layer and role.
std::map<std::pair<std::string, std::string>, int64_t> SumsOfExperts(const nlohmann::json& gemms, const char* size) {
  std::map<std::pair<std::string, std::string>, int64_t> sums;
  for (const nlohmann::json& gemm : gemms) {
    const std::string layer = gemm["layer"];
    const size_t bracket = layer.find('[');
    if (bracket != std::string::npos) sums[{layer.substr(0, bracket), gemm["role"]}] += gemm[size].get<int64_t>();
  }
  return sums;
}

TEST(ExplainTest, GemmsOfExperts) {
  const std::string arguments = "--model moe --tokens 512 --hidden 64 --ffn 96 --experts 8 --top_k 2 --device h100";
  for (const char* load : {"", " --tokens_per_expert 0,0,1000,3,4,5,6,6"}) {
    const nlohmann::json gemms = GemmsOf(arguments + load + " --convention tensorflow");
    const auto rows = SumsOfExperts(gemms, "m");
    EXPECT_EQ(rows.at({"experts.fc1", "forward"}), 1024);
    EXPECT_EQ(rows.at({"experts.fc2", "forward"}), 1024);
    EXPECT_EQ(rows.at({"experts.fc2", "dgrad"}), 1024);
    const auto depths = SumsOfExperts(gemms, "k");
    EXPECT_EQ(depths.at({"experts.fc1", "wgrad"}), 1024);
    EXPECT_EQ(depths.at({"experts.fc2", "wgrad"}), 1024);
    EXPECT_THAT(SizesOf(gemms), Contains(Sizes{"forward", *load == 0 ? 128 : 1000, 192, 64}));
  }
  EXPECT_THAT(RunProgram("explain", arguments).output, HasSubstr("load of the experts: assumed to be even"));
}

TEST(ExplainTest, PrecisionDecidesThePadding) {
  const std::string arguments = "--sizes 1024,33708 --batch 5120 --device h100 --precision ";
  EXPECT_THAT(RunProgram("explain", arguments + "bf16").output, HasSubstr("33712"));
  EXPECT_THAT(RunProgram("explain", arguments + "f32").output, Not(HasSubstr("33712")));
}

TEST(ExplainTest, Measured) {
  const nlohmann::json gemms = GemmsOf("--sizes 64,32,10 --batch 32 --measure");
  EXPECT_EQ(gemms.size(), 5u);
  for (const nlohmann::json& gemm : gemms) EXPECT_GT(gemm["gflops"], 0) << gemm;
}

TEST(ExplainTest, EveryLossAndActivation) {
  const std::string arguments = "--sizes 8,6,4 --batch 3 --device b200 ";
  for (const std::string loss : {"cross_entropy", "mse", "l1", "bce"}) {
    for (const std::string precision : {"f32", "bf16"}) {
      EXPECT_EQ(GemmsOf(arguments + "--loss " + loss + " --precision " + precision).size(), 5u);
    }
  }
  for (const std::string activation : {"gelu", "gelu_tanh", "relu", "tanh", "silu", "sigmoid"}) {
    EXPECT_EQ(GemmsOf(arguments + "--activation " + activation).size(), 5u);
  }
}

TEST(ExplainTest, ModelsLargerThanTheMachine) {
  EXPECT_EQ(GemmsOf("--sizes 400000,400000,10 --batch 64 --device h200").size(), 5u);
  const Finished run = RunProgram("explain", "--sizes 4000000,4000000 --batch 1 --device h100 --measure");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.errors, HasSubstr("no memory for"));
}

void ExpectRefuses(const std::string& arguments, const std::vector<std::string>& mentions) {
  SCOPED_TRACE("explain " + arguments);
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/gemms.json";
  const Finished run = RunProgram("explain", "--device h100 --json " + path + " " + arguments);
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(Lines(run.errors).size(), 1u) << run.errors;
  for (const std::string& mention : mentions) EXPECT_THAT(run.errors, HasSubstr(mention));
  EXPECT_EQ(run.output, "");
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(ExplainTest, Refuses) {
  ExpectRefuses("--model transformer", {"--model", "transformer", "mlp"});
  ExpectRefuses("--sizes ''", {"--sizes"});
  ExpectRefuses("--sizes 784", {"--sizes", "784"});
  ExpectRefuses("--sizes 784,0", {"--sizes", "784,0"});
  ExpectRefuses("--sizes 784,-3", {"--sizes", "-3"});
  ExpectRefuses("--sizes 784,abc", {"--sizes", "abc"});
  ExpectRefuses("--sizes 99999999999999999999,2", {"--sizes", "99999999999999999999"});
  ExpectRefuses("--sizes 4000000000,4000000000", {"--sizes", "--batch"});
  ExpectRefuses("--batch 9000000000000000000", {"--sizes", "--batch"});
  ExpectRefuses("--batch 0", {"--batch", "0"});
  ExpectRefuses("--batch -4", {"--batch", "-4"});
  ExpectRefuses("--threads -1", {"--threads", "-1"});
  ExpectRefuses("--convention caffe2", {"--convention", "caffe2", "pytorch"});
  ExpectRefuses("--device tpu", {"--device", "tpu", "h200"});
  ExpectRefuses("--precision fp8", {"--precision", "fp8", "bf16"});
  ExpectRefuses("--activation cubic", {"--activation", "cubic"});
  ExpectRefuses("--loss hinge", {"--loss", "hinge"});
  ExpectRefuses("--json /nowhere/at/all.json", {"--json", "/nowhere/at/all.json"});
  ExpectRefuses("stray", {"stray"});
  ExpectRefuses("--model moe --experts 4 --top_k 5", {"top_k is 5", "4 experts"});
  ExpectRefuses("--model moe --tokens 0", {"--tokens is 0"});
  ExpectRefuses("--model moe --tokens 9000000000000000000", {"beyond counting"});
  ExpectRefuses("--model moe --sizes 784,10", {"--sizes", "mlp"});
  ExpectRefuses("--experts 4", {"--experts", "moe"});
  ExpectRefuses("--model moe --tokens 8 --experts 2 --tokens_per_expert 9,9", {"--tokens_per_expert", "18", "16"});
  ExpectRefuses("--model moe --tokens 8 --experts 2 --tokens_per_expert 9,x", {"--tokens_per_expert", "x"});
}

nlohmann::json MemoryOf(const std::string& arguments) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/memory.json";
  const Finished run = RunProgram("explain", "--memory " + arguments + " --json " + path);
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  EXPECT_THAT(run.output, HasSubstr("live at the peak"));
  return nlohmann::json::parse(ReadAll(path), nullptr, /*allow_exceptions=*/false);
}

TEST(ExplainTest, MemoryOfADeviceThatIsNotThere) {
  const nlohmann::json memory =
      MemoryOf("--sizes 8192,16384,16384,8192 --global_batch 65536 --device h100 --memory_budget 60GiB");
  EXPECT_EQ(memory["fits"], true);
  int64_t live = 0;
  std::vector<std::string> roles;
  for (const nlohmann::json& item : memory["live_at_peak"]) {
    live += item["bytes"].get<int64_t>();
    roles.push_back(item["role"]);
  }
  EXPECT_EQ(live, memory["predicted_bytes"]);
  for (const char* role : {"parameter", "gradient", "optimizer state", "activation", "workspace", "input"}) {
    EXPECT_THAT(roles, Contains(role));
  }
  std::vector<std::string> changes;
  for (const nlohmann::json& advice : memory["advice"]) {
    changes.push_back(advice["change"]);
    EXPECT_GT(advice["saved_bytes"], 0);
  }
  for (const char* change : {"micro-batch of", "bf16", "recompute layer fc", "optimizer state divided"}) {
    EXPECT_THAT(changes, Contains(HasSubstr(change)));
  }
}

TEST(ExplainTest, MemoryOfASizeOfOnesOwnAndWhatDoesNotFit) {
  const std::string arguments = "--sizes 784,512,10 --global_batch 1000 --memory_budget 12MiB ";
  const nlohmann::json chosen = MemoryOf(arguments);
  const int64_t most = chosen["max_micro_batch"];
  EXPECT_GT(most, 0);
  EXPECT_LT(most, 1000);
  EXPECT_EQ(MemoryOf(arguments + "--micro_batch " + std::to_string(most))["fits"], true);
  const nlohmann::json whole = MemoryOf(arguments + "--micro_batch 0");
  EXPECT_EQ(whole["micro_batch"], 1000);
  EXPECT_EQ(whole["fits"], false);
  const nlohmann::json none = MemoryOf("--sizes 784,512,10 --global_batch 1000 --memory_budget 1MiB");
  EXPECT_EQ(none["fits"], false);
  EXPECT_EQ(none["max_micro_batch"], 0);
  EXPECT_EQ(none["micro_batch"], 1);
}

TEST(ExplainTest, MemoryFlagsThatContradict) {
  for (const auto& [arguments, word] :
       {std::pair("--micro_batch 4", "micro_batch"), std::pair("--memory_budget 1GB", "memory_budget"),
        std::pair("--memory --measure", "measure"), std::pair("--memory --memory_budget 80GG", "80GG"),
        std::pair("--memory --memory_budget @file", "@file"), std::pair("--memory --batch 8 --micro_batch 9", "9")}) {
    const Finished run = RunProgram("explain", arguments);
    EXPECT_EQ(run.exit_code, 1) << arguments;
    EXPECT_THAT(run.errors, HasSubstr(word));
  }
}

}  // namespace
}  // namespace gemmill
