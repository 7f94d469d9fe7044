// The GEMMs of Programs written by hand, and the advice. Those of models: tests/layers/gemm_report_test.cc.
#include "gemmill/runtime/schedule/gemm_report.h"

#include <string>
#include <vector>

#include "gemmill/runtime/schedule/gemm_advice.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/runtime/programs.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

GemmReport Report(const Program& program) { return ValueOf(MakeGemmReport(program, {.device = "h100"})); }

TEST(GemmReportTest, BatchedGemms) {
  Builder builder;
  const int a = builder.Input({4, 3, 8, 16});
  const int b = builder.Input({4, 3, 16, 32});
  const GemmReport report = Report(builder.Finish(builder.Add(op::MatMul{}, {a, b})));
  ASSERT_EQ(report.gemms.size(), 1u);
  const GemmRow& row = report.gemms[0];
  EXPECT_EQ(row.shape, (GemmShape{.m = 32, .n = 8, .k = 16, .batch = 12}));
  EXPECT_EQ(row.flops, 2 * 12 * 8 * 32 * 16);
  EXPECT_EQ(row.bytes, 4 * 12 * (8 * 16 + 16 * 32 + 8 * 32));
  EXPECT_THAT(GemmReportString(report), HasSubstr("x 12"));
}

TEST(GemmReportTest, NothingToReport) {
  Builder builder;
  const GemmReport report = Report(builder.Finish({builder.Unary(UnaryFn::kExp, builder.Input({3}))}));
  EXPECT_THAT(report.gemms, IsEmpty());
  EXPECT_THAT(GemmReportString(report), HasSubstr("0 GEMMs"));
  EXPECT_EQ(nlohmann::json::parse(GemmReportJson(report))["gemms"].size(), 0u);

  Builder empty;
  const int a = empty.Input({0, 4});
  const int b = empty.Input({4, 2});
  const GemmReport nothing = Report(empty.Finish(empty.Add(op::MatMul{}, {a, b})));
  ASSERT_EQ(nothing.gemms.size(), 1u);
  EXPECT_EQ(nothing.gemms[0].flops, 0);
  EXPECT_THAT(nothing.gemms[0].advice, IsEmpty());
}

std::vector<std::string> Advice(const GemmShape& gemm, DType dtype, const std::string& device = "h100") {
  return GemmAdvice(gemm, ValueOf(RooflineOf(device, dtype)));
}

TEST(GemmAdviceTest, Alignment) {
  const GemmShape vocabulary{.m = 33708, .n = 5120, .k = 1024};
  EXPECT_THAT(Advice(vocabulary, DType::kBf16),
              Contains(AllOf(HasSubstr("alignment"), HasSubstr("M from 33708 to 33712"), HasSubstr("8 bf16"))));
  EXPECT_THAT(Advice(vocabulary, DType::kF32), Each(Not(HasSubstr("alignment"))));
  EXPECT_THAT(Advice(vocabulary, DType::kF32), Each(Not(HasSubstr("33712"))));
  EXPECT_THAT(Advice({.m = 4096, .n = 4096, .k = 4095}, DType::kF32), Contains(HasSubstr("K from 4095 to 4096")));
}

TEST(GemmAdviceTest, NothingToSay) {
  // 16 x 33 tiles of 256 x 128: 4 waves of 132.
  EXPECT_THAT(Advice({.m = 4096, .n = 4224, .k = 4096}, DType::kBf16), IsEmpty());
}

TEST(GemmAdviceTest, Tiles) {
  EXPECT_THAT(Advice({.m = 4096, .n = 136, .k = 4096}, DType::kBf16, "a100"),
              Contains(AllOf(HasSubstr("tile quantisation: N = 136 takes 2 tiles of 128, 47% wasted"),
                             HasSubstr("128 or 256 would waste nothing"))));
  EXPECT_THAT(Advice({.m = 4096, .n = 10, .k = 4096}, DType::kBf16),
              Contains(HasSubstr("N = 10 takes 1 tile of 64, 84% wasted; 64 would waste nothing")));
}

TEST(GemmAdviceTest, Waves) {
  // 16 x 34 tiles: 4 waves of 132 and 16 more tiles.
  const std::vector<std::string> advice = Advice({.m = 4096, .n = 4352, .k = 4096}, DType::kBf16);
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_THAT(advice[0], AllOf(HasSubstr("544 tiles of 256x128 on 132 multiprocessors, 5 waves, 88% of the last idle"),
                               HasSubstr("N up to 5248 takes no longer"), HasSubstr("N of at most 4224 takes a wave")));
  // The same GEMM with the sizes that it names leaves nothing idle.
  EXPECT_THAT(Advice({.m = 4096, .n = 5248, .k = 4096}, DType::kBf16), IsEmpty());
  EXPECT_THAT(Advice({.m = 4096, .n = 4224, .k = 4096}, DType::kBf16), IsEmpty());
}

TEST(GemmAdviceTest, CpusHaveNoTiles) {
  const Roofline cpu{.device = "cpu", .flops_per_second = 400e9, .bytes_per_second = 40e9};
  EXPECT_THAT(GemmAdvice({.m = 300, .n = 300, .k = 300}, cpu), IsEmpty());
  EXPECT_THAT(GemmAdvice({.m = 300, .n = 300, .k = 8}, cpu), ElementsAre(HasSubstr("small K")));
  EXPECT_THAT(GemmAdvice({.m = 16, .n = 16, .k = 16}, cpu), ElementsAre(HasSubstr("a larger M alone is not enough")));
}

}  // namespace
}  // namespace gemmill
