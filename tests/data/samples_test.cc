// The data that lies in data/samples.
#include <map>

#include "gemmill/data/idx.h"
#include "tests/data/testing.h"

namespace gemmill {
namespace {

TEST(SamplesTest, DigitsAreCompleteAndEvenlySpread) {
  const std::string path = std::string(GEMMILL_SOURCE_DIR) + "/data/samples/digits";
  int64_t samples = 0;
  for (Split split : {Split::kTrain, Split::kTest}) {
    const Dataset digits = Must(LoadIdxDirectory(path, split, {.classes = 10}));
    samples += digits.size();
    EXPECT_EQ(digits.size(), split == Split::kTrain ? 1437 : 360);
    EXPECT_EQ(Must(digits.NumClasses()), 10);
    EXPECT_EQ(Must(digits.field("x")).shape()[1], 64);
    std::map<int64_t, int64_t> counts;
    for (int64_t label : Values<int64_t>(Must(digits.field("label")))) ++counts[label];
    for (const auto& [label, count] : counts) EXPECT_NEAR(count, digits.size() / 10, digits.size() / 20) << label;
    uint8_t largest = 0;
    for (uint8_t pixel : Values<uint8_t>(Must(digits.field("x")))) largest = std::max(largest, pixel);
    EXPECT_EQ(largest, 255);
  }
  EXPECT_EQ(samples, 1797);
}

}  // namespace
}  // namespace gemmill
