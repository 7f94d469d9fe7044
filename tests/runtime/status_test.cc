#include "gemmill/runtime/status.h"

#include <new>
#include <stdexcept>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmill {
namespace {

using testing::HasSubstr;

TEST(CatchExceptionsTest, PassesOnWhatIsReturned) {
  EXPECT_EQ(CatchExceptions([]() -> absl::StatusOr<int> { return 3; }).value(), 3);
  EXPECT_EQ(CatchExceptions([] { return absl::NotFoundError("it"); }), absl::NotFoundError("it"));
}

TEST(CatchExceptionsTest, MakesErrorsOfExceptions) {
  const auto thrown = [](auto exception) { return CatchExceptions([&]() -> absl::Status { throw exception; }); };
  EXPECT_EQ(thrown(std::bad_alloc()).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(thrown(std::length_error("vector")).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(thrown(std::runtime_error("disk 7")).message(), HasSubstr("disk 7"));
  EXPECT_EQ(thrown(std::runtime_error("disk 7")).code(), absl::StatusCode::kInternal);
  EXPECT_THAT(thrown(7).message(), HasSubstr("no std::exception"));
}

}  // namespace
}  // namespace gemmill
