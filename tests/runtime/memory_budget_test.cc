#include "gemmill/runtime/schedule/memory_budget.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "gemmill/runtime/memory.h"
#include "gemmill/runtime/schedule/device_memory.h"
#include "gmock/gmock.h"
#include "tests/runtime/expect_close.h"

namespace gemmill {
namespace {

using testing::HasSubstr;

int64_t ReadBudget(const std::string& text) {
  absl::StatusOr<MemoryBudget> budget = MemoryBudget::Parse(text);
  EXPECT_TRUE(budget.ok()) << budget.status();
  return budget.ok() ? budget->Read(Device::Cpu(), 0) : -1;
}

TEST(MemoryBudget, IsTheLeastOfWhatIsSaidAndWhatIsLeft) {
  EXPECT_EQ(ReadBudget("512KB"), 512000);
  EXPECT_EQ(ReadBudget("1MiB"), 1 << 20);
  EXPECT_LE(ReadBudget("50%"), TotalBytes(Device::Cpu()) / 2);
  EXPECT_LE(ReadBudget("1000TiB"), TotalBytes(Device::Cpu()));
  EXPECT_GT(ReadBudget(""), 0);
  EXPECT_FALSE(MemoryBudget::Parse("")->stated());
  EXPECT_TRUE(MemoryBudget::Parse("1GB")->stated());
}

TEST(MemoryBudget, RefusesWhatIsNone) {
  for (const char* text : {"80GG", "-1GB", "101%", "0", "@", "@/nowhere/budget", "1 GiB more"}) {
    EXPECT_FALSE(MemoryBudget::Parse(text).ok()) << text;
  }
  EXPECT_THAT(Message(MemoryBudget::Parse("80GG").status()), HasSubstr("80GG"));
}

TEST(MemoryBudget, OfAFileIsReadAgainEachTime) {
  const std::string path = testing::TempDir() + "budget" + std::to_string(getpid());
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  write("3MiB\n");
  MemoryBudget budget = MemoryBudget::Parse("@" + path).value();
  EXPECT_EQ(budget.Read(Device::Cpu(), 0), 3 << 20);
  write("5MiB");
  EXPECT_EQ(budget.Read(Device::Cpu(), 0), 5 << 20);
  EXPECT_EQ(budget.TakeNote(), "");
  // Half-written, empty or gone: the last one stays, and it is said once.
  for (const char* text : {"", "1G1", "MiB"}) {
    write(text);
    EXPECT_EQ(budget.Read(Device::Cpu(), 0), 5 << 20);
  }
  std::remove(path.c_str());
  EXPECT_EQ(budget.Read(Device::Cpu(), 0), 5 << 20);
  EXPECT_THAT(budget.TakeNote(), HasSubstr(path));
  EXPECT_EQ(budget.TakeNote(), "");
  write("7MiB");
  EXPECT_EQ(budget.Read(Device::Cpu(), 0), 7 << 20);
  write("no");
  budget.Read(Device::Cpu(), 0);
  EXPECT_THAT(budget.TakeNote(), HasSubstr("stays"));
  std::remove(path.c_str());
}

TEST(MemoryBudget, ReserveIsAShareUpToABound) {
  EXPECT_EQ(MemoryReserve(1000), 50);
  EXPECT_EQ(MemoryReserve(int64_t{100} << 30), 256 << 20);
}

TEST(DeviceMemory, IsOfTheGpusOfTheRoofline) {
  EXPECT_LT(DeviceMemoryOf("h100")->total_bytes, int64_t{80} << 30);
  EXPECT_GT(DeviceMemoryOf("h200")->total_bytes, int64_t{138} << 30);
  EXPECT_FALSE(DeviceMemoryOf("cpu").ok());
}

TEST(MemoryAccount, CountsWhatItsScopeAllocates) {
  const auto account = std::make_shared<MemoryAccount>();
  const Spec spec{{1000}};
  Tensor kept;
  {
    const MemoryAccountScope scope(account);
    kept = Tensor::Empty(spec).value();
    const Tensor other = Tensor::Empty(spec).value();
    EXPECT_EQ(account->in_use(), 8000);
    const MemoryAccountScope nobody(nullptr);
    const Tensor outside = Tensor::Empty(spec).value();
    EXPECT_EQ(account->in_use(), 8000);
  }
  EXPECT_EQ(account->in_use(), 4000);
  EXPECT_EQ(account->peak(), 8000);
  account->ResetPeak();
  kept = Tensor();
  EXPECT_EQ(account->in_use(), 0);
  EXPECT_EQ(account->peak(), 4000);
}

TEST(MemoryFilter, FailsAllocationsThatItRefuses) {
  SetAllocationFilter([](int64_t bytes) { return bytes != 4000; });
  EXPECT_EQ(Tensor::Empty(Spec{{1000}}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Tensor::Empty(Spec{{999}}).ok());
  SetAllocationFilter(nullptr);
  EXPECT_TRUE(Tensor::Empty(Spec{{1000}}).ok());
}

TEST(AvailableBytes, IsPartOfTheMachine) {
  EXPECT_GT(AvailableBytes(Device::Cpu()), 0);
  EXPECT_LE(AvailableBytes(Device::Cpu()), TotalBytes(Device::Cpu()) + (int64_t{1} << 30));
  EXPECT_GT(ResidentBytes(), 0);
}

}  // namespace
}  // namespace gemmill
