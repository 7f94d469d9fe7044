#include "gemmill/runtime/schedule/calibration.h"

#include "gemmill/runtime/schedule/cost_model.h"
#include "gmock/gmock.h"
#include "tests/runtime/programs.h"

namespace gemmill {
namespace {

Calibration Example() {
  Calibration calibration;
  for (auto& rates : calibration.gemm_flops_per_second) rates = {1e9, 4e9, 16e9, 64e9, 80e9, 80e9};
  calibration.bytes_per_second = {1e11, 4e10, 1e10};
  calibration.cache_bytes = {1 << 20, 16 << 20};
  calibration.seconds_per_step = 1e-6;
  return calibration;
}

TEST(Calibration, IsReadAsItWasWritten) {
  const std::string text = CalibrationJson(Example(), "cpu, 2 threads");
  const absl::StatusOr<Calibration> read = ParseCalibration(text, "cpu, 2 threads");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(CalibrationJson(*read, "cpu, 2 threads"), text);
}

TEST(Calibration, RefusesOtherFiles) {
  const std::string text = CalibrationJson(Example(), "cpu");
  EXPECT_FALSE(ParseCalibration(text, "another").ok());
  for (size_t length = 0; length < text.size() - 2; ++length) {
    EXPECT_FALSE(ParseCalibration(text.substr(0, length), "cpu").ok()) << length;
  }
  for (const char* json :
       {"", "[]", "7", "{\"key\": 7}", "{\"key\": \"cpu\"}", "{\"key\": \"cpu\", \"bytes_per_second\": {}}"}) {
    EXPECT_FALSE(ParseCalibration(json, "cpu").ok()) << json;
  }
  std::string zero = text;
  zero.replace(zero.find("80000000000.0"), 13, "0.0");
  EXPECT_FALSE(ParseCalibration(zero, "cpu").ok());
}

TEST(Calibration, RatesAreBetweenTheMeasuredOnes) {
  const Calibration calibration = Example();
  const auto rate = [&](int64_t samples) { return calibration.GemmRate({samples, 512, 512}, GemmRole::kForward); };
  EXPECT_EQ(rate(1), 1e9);
  EXPECT_EQ(rate(16), 4e9);
  EXPECT_NEAR(rate(32), 10e9, 1e3);
  EXPECT_EQ(rate(64), 16e9);
  EXPECT_EQ(rate(100000), 80e9);
  EXPECT_EQ(calibration.GemmRate({512, 512, 16}, GemmRole::kWgrad), 4e9);
  EXPECT_EQ(calibration.ByteRate(1000), 1e11);
  EXPECT_EQ(calibration.ByteRate(2 << 20), 4e10);
  EXPECT_EQ(calibration.ByteRate(1e9), 1e10);
}

// A row more than a wave of tiles holds costs another wave.
TEST(Calibration, GpusLoseWhatTilesAndWavesLeaveEmpty) {
  const Calibration gpu = Calibration::Of(RooflineOf("h100", DType::kF32).value());
  const auto seconds = [&](int64_t rows) {
    return static_cast<double>(rows) / gpu.GemmRate({rows, 1024, 1024}, GemmRole::kForward);
  };
  EXPECT_EQ(seconds(1), seconds(128));
  EXPECT_EQ(seconds(128), seconds(128 * 16));  // 8 columns of tiles: 16 rows of them still fit 132 multiprocessors
  EXPECT_NEAR(seconds(128 * 16 + 1), 2 * seconds(128 * 16), 1e-12);
}

// Of two passes over the same values, the second finds them in a cache that holds them.
TEST(CostModel, BytesComeFromTheCacheThatHoldsThem) {
  const auto seconds_of = [](int64_t elements) {
    Builder builder;
    const int x = builder.Input({elements});
    const int y = builder.Unary(UnaryFn::kRelu, x);
    const int z = builder.Unary(UnaryFn::kRelu, y);
    return PredictSeconds(builder.Finish({z}), Example()) - 2e-6;
  };
  EXPECT_LT(seconds_of(10000), 100 * seconds_of(100) + 1e-12);
  EXPECT_GT(seconds_of(100 << 20), 2.5 * 1024 * seconds_of(100 << 10));
}

TEST(CostModel, GemmsGoAtTheRateOfTheirSamples) {
  const auto seconds_of = [](int64_t samples) {
    Builder builder;
    const int x = builder.Input({samples, 512});
    const int w = builder.Input({512, 512});
    return PredictSeconds(builder.Finish({builder.Add(op::MatMul{false, true}, {x, w})[0]}), Example()) - 1e-6;
  };
  EXPECT_NEAR(seconds_of(256), 2.0 * 256 * 512 * 512 / 64e9, 1e-9);
  EXPECT_GT(16 * seconds_of(16), 3 * seconds_of(256));
}

TEST(Calibration, OfThisMachineStaysTheSame) {
  const absl::StatusOr<Calibration> once = CalibrationOfThisMachine();
  ASSERT_TRUE(once.ok()) << once.status();
  EXPECT_EQ(CalibrationJson(*once, ""), CalibrationJson(*CalibrationOfThisMachine(), ""));
  EXPECT_GE(once->bytes_per_second[0], once->bytes_per_second[2]);
}

}  // namespace
}  // namespace gemmill
