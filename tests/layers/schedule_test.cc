#include "gemmill/layers/training/schedule.h"

#include <cmath>

#include "tests/autograd/vars.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ScheduleTest, Constant) {
  EXPECT_EQ(Schedule::Constant().Factor(0), 1);
  EXPECT_EQ(Schedule::Constant().Factor(1000000), 1);
  EXPECT_TRUE(Schedule::Constant().Check().ok());
}

TEST(ScheduleTest, WarmupCosine) {
  const Schedule schedule = Schedule::WarmupCosine(4, 14, 0.1);
  EXPECT_TRUE(schedule.Check().ok());
  EXPECT_DOUBLE_EQ(schedule.Factor(0), 0.25);
  EXPECT_DOUBLE_EQ(schedule.Factor(3), 1);
  EXPECT_DOUBLE_EQ(schedule.Factor(4), 1);
  EXPECT_DOUBLE_EQ(schedule.Factor(9), 0.55);
  EXPECT_DOUBLE_EQ(schedule.Factor(14), 0.1);
  EXPECT_DOUBLE_EQ(schedule.Factor(1000), 0.1);
}

TEST(ScheduleTest, WarmupOfNoneOrOfAllSteps) {
  EXPECT_DOUBLE_EQ(Schedule::WarmupCosine(0, 10).Factor(0), 1);
  EXPECT_NEAR(Schedule::WarmupCosine(0, 10).Factor(10), 0, 1e-15);
  EXPECT_TRUE(Schedule::WarmupCosine(10, 10).Check().ok());
  EXPECT_DOUBLE_EQ(Schedule::WarmupCosine(10, 10).Factor(9), 1);
  EXPECT_NEAR(Schedule::WarmupCosine(10, 10).Factor(10), 0, 1e-15);
}

TEST(ScheduleTest, Step) {
  const Schedule schedule = Schedule::Step(3, 0.1);
  EXPECT_DOUBLE_EQ(schedule.Factor(2), 1);
  EXPECT_DOUBLE_EQ(schedule.Factor(3), 0.1);
  EXPECT_DOUBLE_EQ(schedule.Factor(6), 0.01);
}

TEST(ScheduleTest, Refuses) {
  EXPECT_THAT(Message(Schedule::WarmupCosine(20, 10).Check()), AllOf(HasSubstr("20"), HasSubstr("10")));
  EXPECT_THAT(Message(Schedule::WarmupCosine(-1, 10).Check()), HasSubstr("-1"));
  EXPECT_FALSE(Schedule::WarmupCosine(0, 0).Check().ok());
  EXPECT_THAT(Message(Schedule::Step(0, 0.5).Check()), HasSubstr("every 0"));
  EXPECT_THAT(Message(Schedule::Step(3, -0.5).Check()), HasSubstr("-0.5"));
  EXPECT_FALSE(Schedule::Step(3, NAN).Check().ok());
  EXPECT_THAT(Message(Schedule::Step(2, INFINITY).Check()), HasSubstr("factor inf"));
  EXPECT_FALSE(Schedule::WarmupCosine(1, 2, INFINITY).Check().ok());
}

}  // namespace
}  // namespace gemmill
