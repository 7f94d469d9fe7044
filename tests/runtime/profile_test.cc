#include "gemmill/runtime/profile.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/runtime/programs.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Program MatMulThenExp() {
  Builder builder;
  const int a = builder.Input({2, 3});
  const int b = builder.Input({3, 4});
  const int c = builder.Add(op::MatMul{}, {a, b}, {"model.cc", 7})[0];
  return builder.Finish({builder.Unary(UnaryFn::kExp, c, {"model.cc", 8})});
}

TEST(ProfileTest, RowsAddUp) {
  const Program program = MatMulThenExp();
  Profile profile;
  profile.Add(program, 0, 0.5);
  profile.Add(program, 1, 4);
  profile.Add(program, 0, 1.5);
  const std::vector<Profile::Row> rows = profile.Rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, "exp");
  EXPECT_EQ(rows[1].name, "MatMul");
  EXPECT_EQ(rows[1].shapes, "(f32[2, 3], f32[3, 4]) -> f32[2, 4]");
  EXPECT_EQ(rows[1].count, 2);
  EXPECT_DOUBLE_EQ(rows[1].seconds, 2);
  EXPECT_DOUBLE_EQ(rows[1].flops_per_second(), 2 * 3 * 4 * 2);  // two runs in 2 s
  EXPECT_DOUBLE_EQ(rows[1].bytes_per_second(), 4 * (6 + 12 + 8));
  EXPECT_DOUBLE_EQ(profile.seconds(), 6);
  EXPECT_THAT(profile.Table(), AllOf(HasSubstr("MatMul (f32[2, 3], f32[3, 4]) -> f32[2, 4], model.cc:7"),
                                     HasSubstr("66.7%"), HasSubstr("33.3%")));
  EXPECT_THAT(profile.Table(1), AllOf(HasSubstr("and 1 more"), Not(HasSubstr("MatMul"))));
}

TEST(ProfileTest, LikeStepsOfTwoProgramsAreOneRow) {
  const Program first = MatMulThenExp();
  const Program second = MatMulThenExp();
  Profile profile;
  profile.Add(first, 0, 1);
  profile.Add(second, 0, 1);
  EXPECT_EQ(profile.Rows().size(), 1u);

  Builder builder;
  const int x = builder.Input({3});
  const Program twice = builder.Finish(
      {builder.Unary(UnaryFn::kExp, x, {"model.cc", 1}), builder.Unary(UnaryFn::kExp, x, {"model.cc", 1})});
  Profile apart;
  apart.Add(twice, 0, 1);
  apart.Add(twice, 1, 1);
  EXPECT_EQ(apart.Rows().size(), 2u);
}

TEST(ProfileTest, ChromeTrace) {
  Program program = MatMulThenExp();
  program.steps[0].origin.layer = "odd \"name\"\n\xff";  // a user's own, and no UTF-8
  program.steps[0].origin.role = GemmRole::kWgrad;
  Profile profile(/*most_events=*/3);
  for (int run = 0; run < 3; ++run) {
    profile.Add(program, 0, 0.001 * run);
    profile.Add(program, 1, 0.001 * run);
  }
  const nlohmann::json trace = nlohmann::json::parse(profile.TraceJson());
  ASSERT_EQ(trace["traceEvents"].size(), 3u);  // the last ones
  const nlohmann::json& event = trace["traceEvents"][1];
  EXPECT_EQ(event["name"], "MatMul");
  EXPECT_EQ(event["ph"], "X");
  EXPECT_NEAR(event["dur"].get<double>(), 2000, 1e-6);  // microseconds
  EXPECT_GE(event["ts"].get<double>(), 0);
  EXPECT_EQ(event["args"]["role"], "wgrad");
  EXPECT_EQ(event["args"]["line"], "model.cc:7");
  EXPECT_THAT(event["args"]["layer"].get<std::string>(), HasSubstr("odd \"name\"\n"));
  EXPECT_THAT(event["args"]["shapes"].get<std::string>(), HasSubstr("f32[2, 4]"));
  EXPECT_EQ(profile.Rows()[0].count, 3);  // the table is of all
}

TEST(ProfileTest, Empty) {
  const Profile profile;
  EXPECT_EQ(nlohmann::json::parse(profile.TraceJson())["traceEvents"].size(), 0u);
  EXPECT_THAT(profile.Rows(), IsEmpty());
}

TEST(ProfileTest, WatchesAReplay) {
  Replay replay = MustReplay(MatMulThenExp());
  const std::vector<Tensor> inputs = InputsFor(replay.program());
  Profile profile;
  replay.SetWatch(profile.Watch());
  for (int run = 0; run < 3; ++run) EXPECT_TRUE(replay.Run(inputs).ok());
  replay.SetWatch({});
  EXPECT_TRUE(replay.Run(inputs).ok());
  ASSERT_EQ(profile.Rows().size(), 2u);
  for (const Profile::Row& row : profile.Rows()) EXPECT_EQ(row.count, 3);
}

}  // namespace
}  // namespace gemmill
