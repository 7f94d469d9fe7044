#include "gemmill/runtime/file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(WriteFileTest, WholeOrNotThere) {
  std::string directory = testing::TempDir() + "gemmill_file_XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const std::string path = directory + "/file.json";
  EXPECT_TRUE(WriteFile(path, "first").ok());
  EXPECT_TRUE(WriteFile(path, "2").ok());
  EXPECT_EQ(Read(path), "2");
  EXPECT_THAT(std::string(WriteFile(directory + "/none/file.json", "x").message()),
              AllOf(HasSubstr("cannot write " + directory + "/none/file.json"), HasSubstr("No such file")));
  EXPECT_FALSE(WriteFile(directory, "x").ok());
  EXPECT_TRUE(WriteFile("/dev/null", "x").ok());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  // No temporary is left behind.
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) names.push_back(entry.path().filename());
  EXPECT_THAT(names, testing::ElementsAre("file.json"));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace gemmill
