#include "gemmill/layers/initialize.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "gemmill/layers/linear.h"
#include "tests/autograd/vars.h"

namespace gemmill {
namespace {

using testing::Each;
using testing::HasSubstr;

std::vector<double> Make(Initializer initializer, const Shape& shape, uint64_t seed = 1, double scale = 1,
                         DType dtype = DType::kF32) {
  return Read(ValueOf(MakeParameter(shape, initializer, {.seed = seed, .dtype = dtype}, scale)));
}

// 200 outputs of 300 inputs: 60,000 values.
TEST(InitializeTest, MeanAndVarianceFollowTheFans) {
  constexpr double kCount = 60000;
  struct Expected {
    Initializer initializer;
    double deviation;
    bool uniform;
  };
  for (const auto& [initializer, deviation, uniform] :
       std::vector<Expected>{{Initializer::kNormal, 1, false},
                             {Initializer::kUniform, 1 / std::sqrt(3.0), true},
                             {Initializer::kKaimingNormal, std::sqrt(2.0 / 300), false},
                             {Initializer::kKaimingUniform, std::sqrt(2.0 / 300), true},
                             {Initializer::kXavierNormal, std::sqrt(2.0 / 500), false},
                             {Initializer::kXavierUniform, std::sqrt(2.0 / 500), true}}) {
    for (double scale : {1.0, 0.5}) {
      SCOPED_TRACE(static_cast<int>(initializer));
      const std::vector<double> values = Make(initializer, {200, 300}, 7, scale);
      const double spread = deviation * scale;
      double sum = 0;
      double squares = 0;
      double most = 0;
      for (double value : values) {
        sum += value;
        squares += value * value;
        most = std::max(most, std::fabs(value));
      }
      // Five standard errors; the variance of x^2 is 2 s^4 for a normal distribution and 0.8 s^4 for a uniform one.
      EXPECT_NEAR(sum / kCount, 0, 5 * spread / std::sqrt(kCount));
      const double of_squares = std::sqrt((uniform ? 0.8 : 2) / kCount);
      EXPECT_NEAR(squares / kCount, spread * spread, 5 * spread * spread * of_squares);
      if (uniform) {
        EXPECT_LE(most, spread * std::sqrt(3.0) * (1 + 1e-6));
        EXPECT_GT(most, spread * std::sqrt(3.0) * 0.999);
      } else {
        EXPECT_GT(most, 3.5 * spread);
        EXPECT_LT(most, 6 * spread);
      }
    }
  }
}

TEST(InitializeTest, Constants) {
  EXPECT_THAT(Make(Initializer::kZeros, {3}), Each(0));
  EXPECT_THAT(Make(Initializer::kOnes, {3}), Each(1));
}

TEST(InitializeTest, TheSeedAloneDecides) {
  const std::vector<double> values = Make(Initializer::kNormal, {64, 64}, 5);
  EXPECT_NE(Make(Initializer::kNormal, {64, 64}, 6), values);
  for (int threads : {1, 2}) {
    const WithThreads with(threads);
    EXPECT_EQ(Make(Initializer::kNormal, {64, 64}, 5), values);
  }
}

TEST(InitializeTest, PartsDiffer) {
  std::set<uint64_t> seeds;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (uint64_t part = 0; part < 10; ++part) seeds.insert(InitOptions{.seed = seed}.Part(part).seed);
  }
  EXPECT_EQ(seeds.size(), 100u);
  EXPECT_EQ((InitOptions{.dtype = DType::kBf16}.Part(3).dtype), DType::kBf16);
  const Mlp mlp = Mlp::Create({.sizes = {8, 8, 8}, .activation = Activation::kTanh}).value();
  EXPECT_NE(Read(mlp.layers()[0].weight()), Read(mlp.layers()[1].weight()));
}

TEST(InitializeTest, Bf16IsTheRoundedF32) {
  const std::vector<double> wide = Make(Initializer::kNormal, {100}, 5);
  const std::vector<double> narrow = Make(Initializer::kNormal, {100}, 5, 1, DType::kBf16);
  for (size_t i = 0; i < wide.size(); ++i) {
    EXPECT_EQ(narrow[i], static_cast<float>(bf16(static_cast<float>(wide[i]))));
  }
}

TEST(InitializeTest, LayersChooseByActivation) {
  const auto variance = [](const LinearOptions& options) {
    double squares = 0;
    const std::vector<double> values = Read(Linear::Create(options, {.seed = 3})->weight());
    for (double value : values) squares += value * value;
    return squares / static_cast<double>(values.size());
  };
  LinearOptions options{.inputs = 300, .outputs = 100};
  EXPECT_NEAR(variance(options), 2.0 / 400, 2e-4);
  options.activation = Activation::kTanh;
  EXPECT_NEAR(variance(options), 2.0 / 400, 2e-4);
  for (Activation kin : {Activation::kRelu, Activation::kGelu, Activation::kGeluTanh, Activation::kSilu}) {
    options.activation = kin;
    EXPECT_NEAR(variance(options), 2.0 / 300, 2e-4);
  }
  options.initializer = Initializer::kZeros;
  EXPECT_EQ(variance(options), 0);
  EXPECT_THAT(Read(Linear::Create({.inputs = 3, .outputs = 2}, {.seed = 3})->bias()), Each(0));
}

TEST(InitializeTest, Refuses) {
  EXPECT_THAT(Message(MakeParameter({3}, Initializer::kKaimingNormal, {}).status()), HasSubstr("[3]"));
  EXPECT_FALSE(MakeParameter({0, 3}, Initializer::kXavierUniform, {}).ok());
  EXPECT_FALSE(MakeParameter({-1}, Initializer::kNormal, {}).ok());
  EXPECT_FALSE(MakeParameter({int64_t{1} << 62, 8}, Initializer::kOnes, {}).ok());
  EXPECT_THAT(Message(MakeParameter({3}, Initializer::kOnes, {.dtype = DType::kU8}).status()), HasSubstr("u8"));
}

}  // namespace
}  // namespace gemmill
