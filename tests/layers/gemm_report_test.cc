// The GEMMs of models, in both conventions, and what bounds them.
#include "gemmill/runtime/schedule/gemm_report.h"

#include <string>
#include <tuple>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/layers/training.h"

namespace gemmill {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

using Gemm = std::tuple<std::string, std::string, int64_t, int64_t, int64_t>;  // layer, role, m, n, k

std::vector<Gemm> GemmsOf(const GemmReport& report) {
  std::vector<Gemm> gemms;
  for (const GemmRow& row : report.gemms) {
    gemms.emplace_back(row.origin.layer, RoleName(row.origin.role), row.shape.m, row.shape.n, row.shape.k);
  }
  return gemms;
}

GemmReport Report(const Program& program, const std::string& device = "h100",
                  GemmConvention convention = GemmConvention::kPytorch) {
  return ValueOf(MakeGemmReport(program, {.device = device, .convention = convention}));
}

Program MlpProgram(const std::vector<int64_t>& sizes, int64_t batch, DType dtype = DType::kF32) {
  const Mlp model = Mlp::Create({.sizes = sizes}, {.dtype = dtype, .reserve_only = true}).value();
  const auto loss = [&](const Inputs& in) { return CrossEntropy(model(in["x"]), in["label"]); };
  const FieldSpec fields[] = {{"x", Spec{{batch, sizes[0]}, dtype}}, {"label", Spec{{batch}, DType::kI64}}};
  return TrainingProgram(model, loss, fields).value();
}

TEST(GemmReportTest, BothConventions) {
  const Program program = MlpProgram({30, 20, 10}, 7);
  EXPECT_THAT(GemmsOf(Report(program)),
              UnorderedElementsAre(Gemm{"fc1", "forward", 20, 7, 30}, Gemm{"fc2", "forward", 10, 7, 20},
                                   Gemm{"fc2", "dgrad", 20, 7, 10}, Gemm{"fc2", "wgrad", 20, 10, 7},
                                   Gemm{"fc1", "wgrad", 30, 20, 7}));
  EXPECT_THAT(GemmsOf(Report(program, "h100", GemmConvention::kTensorflow)),
              UnorderedElementsAre(Gemm{"fc1", "forward", 7, 20, 30}, Gemm{"fc2", "forward", 7, 10, 20},
                                   Gemm{"fc2", "dgrad", 7, 20, 10}, Gemm{"fc2", "wgrad", 10, 20, 7},
                                   Gemm{"fc1", "wgrad", 20, 30, 7}));
}

// A weight kept as [inputs, outputs]: its gradient is computed transposed, and the convention is the same.
TEST(GemmReportTest, WeightsTheOtherWayRound) {
  for (const bool transposed : {false, true}) {
    const Var weight = MakeParameter(transposed ? Shape{20, 30} : Shape{30, 20}, Initializer::kZeros, {}).value();
    const auto step = [&](const std::vector<Var>& in) {
      const Var loss = Sum(Tanh(MatMul(in[0], weight, {.trans_b = transposed})));
      return std::vector<Var>{loss, Grad(loss, {weight})[0]};
    };
    const Spec x{{7, 30}};
    EXPECT_THAT(GemmsOf(Report(Trace(step, {&x, 1}).value())),
                ElementsAre(Gemm{"", "forward", 20, 7, 30}, Gemm{"", "wgrad", 30, 20, 7}))
        << transposed;
  }
}

TEST(GemmReportTest, FlopsBytesAndBound) {
  const GemmReport narrow = Report(MlpProgram({8192, 8192}, 128, DType::kBf16));
  ASSERT_EQ(narrow.gemms.size(), 2u);
  const GemmRow& row = narrow.gemms[0];
  EXPECT_EQ(row.dtype, DType::kBf16);
  EXPECT_EQ(row.flops, int64_t{2} * 8192 * 8192 * 128);
  EXPECT_EQ(row.bytes, 2 * (int64_t{8192} * 8192 + 2 * 8192 * 128 + 8192));  // the bias too
  EXPECT_NEAR(row.intensity(), 124, 0.2);
  EXPECT_TRUE(row.memory_bound);
  EXPECT_NEAR(row.predicted_seconds, static_cast<double>(row.bytes) / 3.35e12, 1e-12);
  EXPECT_THAT(row.advice, Contains(HasSubstr("small N: bound by memory at 128; from about 319 on")));

  const GemmReport square = Report(MlpProgram({8192, 8192}, 8192, DType::kBf16));
  EXPECT_FALSE(square.gemms[0].memory_bound);
  EXPECT_NEAR(square.gemms[0].predicted_seconds, 2 * 8192.0 * 8192 * 8192 / 989.5e12, 1e-9);
}

// At the size that the advice names arithmetic is the bound, and just below it memory is.
TEST(GemmReportTest, TheSizeThatHelpsDoes) {
  for (const int64_t batch : {318, 319}) {
    EXPECT_EQ(Report(MlpProgram({8192, 8192}, batch, DType::kBf16)).gemms[1].memory_bound, batch == 318) << batch;
  }
}

TEST(GemmReportTest, ThisMachineMeasured) {
  const GemmReport report = ValueOf(MakeGemmReport(MlpProgram({24, 16, 8}, 32), {.measure = true}));
  ASSERT_EQ(report.gemms.size(), 5u);
  for (const GemmRow& row : report.gemms) {
    EXPECT_GT(row.measured_seconds, 0);
    EXPECT_GT(row.peak_share, 0);
    EXPECT_LE(row.peak_share, 1);
  }
  EXPECT_THAT(GemmReportString(report), HasSubstr("of peak"));
}

TEST(GemmReportTest, Json) {
  const GemmReport report = Report(MlpProgram({784, 12}, 5), "a100", GemmConvention::kTensorflow);
  const nlohmann::json json = nlohmann::json::parse(GemmReportJson(report));
  EXPECT_EQ(json["convention"], "tensorflow");
  EXPECT_EQ(json["device"], "a100");
  ASSERT_EQ(json["gemms"].size(), 2u);
  const nlohmann::json& gemm = json["gemms"][0];
  EXPECT_EQ(gemm["layer"], "fc1");
  EXPECT_EQ(gemm["role"], "forward");
  EXPECT_EQ(gemm["m"], 5);
  EXPECT_EQ(gemm["n"], 12);
  EXPECT_EQ(gemm["k"], 784);
  EXPECT_EQ(gemm["batch"], 1);
  EXPECT_EQ(gemm["flops"], 2 * 5 * 12 * 784);
  EXPECT_EQ(gemm["bound"], "memory");
  EXPECT_TRUE(gemm["advice"].is_array());
  EXPECT_FALSE(gemm.contains("gflops"));
}

TEST(GemmReportTest, Refuses) {
  const Program program = MlpProgram({4, 2}, 3);
  EXPECT_THAT(std::string(MakeGemmReport(program, {.device = "tpu"}).status().message()), HasSubstr("\"tpu\""));
  EXPECT_THAT(std::string(ParseConvention("caffe2").status().message()), HasSubstr("\"caffe2\""));
}

// A weight of a terabyte costs no memory to report.
TEST(GemmReportTest, LargerThanTheMachine) {
  const int64_t before = BytesInUse(Device::Cpu());
  EXPECT_EQ(Report(MlpProgram({500000, 500000}, 64)).gemms.size(), 2u);
  EXPECT_LT(BytesInUse(Device::Cpu()) - before, 1 << 20);
}

}  // namespace
}  // namespace gemmill
