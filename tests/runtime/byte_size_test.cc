#include "gemmill/runtime/byte_size.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ByteSizeTest, Sizes) {
  const std::pair<const char*, int64_t> sizes[] = {{"0", 0},
                                                   {"123", 123},
                                                   {"123B", 123},
                                                   {"007", 7},
                                                   {"512MB", 512'000'000},
                                                   {"80GiB", int64_t{80} << 30},
                                                   {"80gib", int64_t{80} << 30},
                                                   {" 80 GiB ", int64_t{80} << 30},
                                                   {"1.5GiB", int64_t{3} << 29},
                                                   {"1KB", 1000},
                                                   {"1KiB", 1024},
                                                   {"0.1TB", 100'000'000'000},
                                                   {"1.1KB", 1100},
                                                   {"1.0", 1},
                                                   {"0.4", 0},
                                                   {"2TiB", int64_t{1} << 41},
                                                   {"9223372036854775807", 9223372036854775807},
                                                   {"8388607TiB", 8388607 * (int64_t{1} << 40)}};
  for (const auto& [text, bytes] : sizes) {
    const absl::StatusOr<int64_t> parsed = ParseByteSize(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(ByteSizeTest, RefusesWithTheFormsThatItTakes) {
  for (const char* text : {"",
                           " ",
                           "80GG",
                           "80G",
                           "-1",
                           "+1",
                           "GiB",
                           "B",
                           "1e3",
                           "1e400GiB",
                           "0x10",
                           "nan",
                           "inf",
                           "infGiB",
                           "1.",
                           ".5GiB",
                           "1.2.3",
                           "1,5GiB",
                           "1 2",
                           "50%",
                           "1GiBGiB",
                           "1 GiB B",
                           "1..5",
                           "\xff",
                           "9223372036854775808",
                           "8388608TiB",
                           "8388608.0TiB",
                           "99999999999999999999GiB",
                           "9223372036854775807.5"}) {
    const absl::StatusOr<int64_t> parsed = ParseByteSize(text);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(parsed.status().message()), AllOf(HasSubstr("1.5GiB"), HasSubstr("KiB, MiB, GiB"))) << text;
  }
  EXPECT_THAT(std::string(ParseByteSize("80GG").status().message()), HasSubstr("'80GG' is no size in bytes"));
  EXPECT_FALSE(ParseByteSize(std::string(100'000, '9')).ok());
  EXPECT_FALSE(ParseByteSize(std::string(100'000, '9') + ".5GiB").ok());
  EXPECT_FALSE(ParseByteSize(absl::string_view("1\0GiB", 5)).ok());
}

TEST(ByteSizeTest, Budgets) {
  EXPECT_EQ(ParseByteBudget("50%", 1001).value(), 500);
  EXPECT_EQ(ParseByteBudget(" 12.5 % ", 1000).value(), 125);
  EXPECT_EQ(ParseByteBudget("100%", 9223372036854775807).value(), 9223372036854775807);
  EXPECT_EQ(ParseByteBudget("1.5KiB", 10).value(), 1536);  // more than there is: the caller's to judge
  for (const char* text :
       {"", "%", "-5%", "101%", "100.1%", "1e1%", "nan%", "50%%", "0%", "0", "0.0GiB", "0.01%", "80GG"}) {
    EXPECT_THAT(std::string(ParseByteBudget(text, 1000).status().message()), HasSubstr("50%")) << text;
  }
}

}  // namespace
}  // namespace gemmill
