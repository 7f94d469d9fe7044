// The short examples run, and are as short as they are meant to be.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/examples/run_program.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

std::vector<std::string> Source(const std::string& name) {
  return Lines(ReadAll(std::string(GEMMILL_SOURCE_DIR) + "/examples/" + name));
}

// The number after the last "loss ".
double LastLoss(const std::string& output) { return std::stod(output.substr(output.rfind("loss ") + 5)); }
double FirstLoss(const std::string& output) { return std::stod(output.substr(output.find("loss ") + 5)); }

TEST(ExamplesTest, LoopTrainsWithoutATrainer) {
  const Finished run = RunProgram("loop");
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  EXPECT_THAT(run.output, AllOf(HasSubstr("step 100"), HasSubstr("step 400")));
  EXPECT_LT(LastLoss(run.output), 0.5 * FirstLoss(run.output));
  EXPECT_LT(LastLoss(run.output), 0.05);
  EXPECT_EQ(RunProgram("loop").output, run.output);
}

TEST(ExamplesTest, LoopFitsIn20Lines) {
  const std::vector<std::string> source = Source("loop.cc");
  const auto begin = std::find(source.begin(), source.end(), "absl::Status Train() {");
  const auto end = std::find(begin, source.end(), "}");
  ASSERT_NE(end, source.end());
  EXPECT_LE(end - begin + 1, 20);
}

TEST(ExamplesTest, OwnOpHasDerivativesOfTwoOrders) {
  const Finished run = RunProgram("own_op");
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  EXPECT_EQ(run.output, "3 x^2 = 3  6 x = 6\n3 x^2 = 12  6 x = 12\n3 x^2 = 27  6 x = 18\n");
  EXPECT_LT(Source("own_op.cc").size(), 60u);
}

TEST(ExamplesTest, OwnLayerLearns) {
  const Finished run = RunProgram("own_layer");
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  EXPECT_THAT(run.output, AllOf(HasSubstr("Residual"), ContainsRegex("mlp.fc1 +Linear 16 -> 64, gelu"),
                                ContainsRegex("total .* 2 forward")));
  EXPECT_LT(LastLoss(run.output), FirstLoss(run.output));
  EXPECT_LT(Source("own_layer.cc").size(), 60u);
}

}  // namespace
}  // namespace gemmill
