#include "gemmill/data/byte_stream.h"

#include "tests/data/gzip.h"
#include "tests/data/testing.h"

namespace gemmill {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// All that `bytes` hold, read in steps of `step`.
absl::StatusOr<std::string> ReadAll(const std::string& bytes, int64_t step) {
  ByteStream stream(bytes);
  std::string all;
  std::string part(static_cast<size_t>(step), '\0');
  while (true) {
    GM_ASSIGN_OR_RETURN(const int64_t got, stream.Read(part.data(), step));
    all.append(part.data(), static_cast<size_t>(got));
    if (got < step) return all;
  }
}

std::string Text() {
  std::string text;
  for (int i = 0; i < 3000; ++i) absl::StrAppend(&text, i * i, ",");
  return text;
}

TEST(ByteStreamTest, ReadsPlainAndPackedBytesAlike) {
  const std::string text = Text();
  for (int64_t step : {1, 7, 4096, 1 << 20}) {
    EXPECT_EQ(Must(ReadAll(text, step)), text);
    EXPECT_EQ(Must(ReadAll(Gzip(text), step)), text);
    EXPECT_EQ(Must(ReadAll(Gzip(text) + Gzip("") + Gzip("tail"), step)), text + "tail");
  }
  EXPECT_EQ(Must(ReadAll("", 10)), "");
  EXPECT_EQ(Must(ReadAll(Gzip(""), 10)), "");
}

TEST(ByteStreamTest, TruncatedGzipIsAnErrorAtEveryOffset) {
  const std::string packed = Gzip(Text().substr(0, 500));
  for (size_t length = 2; length < packed.size(); ++length) {
    EXPECT_THAT(Error(ReadAll(packed.substr(0, length), 64)), HasSubstr("gzip data is truncated")) << length;
  }
}

TEST(ByteStreamTest, CorruptGzipIsAnError) {
  const std::string text = Text();
  const std::string packed = Gzip(text);
  // What lies in the first 10 bytes, such as the time, may be anything.
  for (size_t at = 10; at < packed.size(); at += 11) {
    std::string broken = packed;
    broken[at] = static_cast<char>(broken[at] ^ 0x55);
    EXPECT_THAT(Error(ReadAll(broken, 1000)), HasSubstr("gzip data is"));
  }
  EXPECT_THAT(Error(ReadAll(packed + "x", 1000)), HasSubstr("followed by 1 other bytes"));
}

TEST(ReadFileTest, ReadsAllBytesAndNamesThePathOtherwise) {
  const TemporaryDirectory directory;
  const std::string bytes = Text() + std::string(1, '\0') + "\xff";
  EXPECT_EQ(Must(ReadFile(directory.Write("some", bytes))), bytes);
  EXPECT_EQ(Must(ReadFile(directory.Write("empty", ""))), "");
  EXPECT_THAT(Error(ReadFile("no/such/file")), StartsWith("no/such/file: No such file"));
  EXPECT_THAT(Error(ReadFile(directory.path())), StartsWith(directory.path() + ": Is a directory"));
}

}  // namespace
}  // namespace gemmill
