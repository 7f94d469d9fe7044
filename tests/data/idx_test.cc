#include "gemmill/data/idx.h"

#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cmath>

#include "tests/data/gzip.h"
#include "tests/data/testing.h"

namespace gemmill {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string BigEndian(uint64_t value, int bytes) {
  std::string result;
  for (int i = bytes - 1; i >= 0; --i) result.push_back(static_cast<char>(value >> (8 * i)));
  return result;
}

std::string Header(int type, const std::vector<uint32_t>& dimensions) {
  std::string result{'\0', '\0', static_cast<char>(type), static_cast<char>(dimensions.size())};
  for (uint32_t dimension : dimensions) result += BigEndian(dimension, 4);
  return result;
}

std::string Images(uint32_t count) {
  std::string bytes = Header(8, {count, 2, 3});
  for (uint32_t i = 0; i < count * 6; ++i) bytes.push_back(static_cast<char>(i * 51 % 256));
  return bytes;
}

std::string Labels(const std::string& labels) { return Header(8, {static_cast<uint32_t>(labels.size())}) + labels; }

TEST(IdxTest, ReadsEveryType) {
  EXPECT_EQ(Must(ParseIdx(Images(2), "f")).spec().ToString(), "u8[2, 2, 3]");
  EXPECT_THAT(Values<uint8_t>(Must(ParseIdx(Header(8, {2}) + "\x01\xff", "f"))), ElementsAre(1, 255));
  EXPECT_THAT(Values<int32_t>(Must(ParseIdx(Header(9, {2}) + "\x01\xff", "f"))), ElementsAre(1, -1));
  EXPECT_THAT(Values<int32_t>(Must(ParseIdx(Header(11, {2}) + "\x01\x02\xff\xfe", "f"))), ElementsAre(258, -2));
  EXPECT_THAT(Values<int32_t>(Must(ParseIdx(Header(12, {1}) + BigEndian(0x80000001, 4), "f"))),
              ElementsAre(-2147483647));
  EXPECT_THAT(Values<float>(Must(ParseIdx(Header(13, {1}) + BigEndian(std::bit_cast<uint32_t>(-1.5f), 4), "f"))),
              ElementsAre(-1.5f));
  EXPECT_THAT(Values<double>(Must(ParseIdx(Header(14, {1, 1}) + BigEndian(std::bit_cast<uint64_t>(0.1), 8), "f"))),
              ElementsAre(0.1));
}

TEST(IdxTest, TellsGzipByItsBytesNotByItsName) {
  const TemporaryDirectory directory;
  EXPECT_EQ(Must(ReadIdx(directory.Write("packed", Gzip(Images(3))))).spec().ToString(), "u8[3, 2, 3]");
  EXPECT_EQ(Must(ReadIdx(directory.Write("plain.gz", Images(3)))).spec().ToString(), "u8[3, 2, 3]");
}

TEST(IdxTest, TruncatedAtEveryOffsetNamesFileAndPart) {
  const std::string bytes = Images(2);  // 4 bytes of magic number, 12 of dimensions, 12 values
  for (size_t length = 0; length < bytes.size(); ++length) {
    const char* part = length < 4 ? "magic number" : length < 16 ? "dimensions" : "values (u8[2, 2, 3])";
    for (const std::string& file : {bytes.substr(0, length), Gzip(bytes.substr(0, length))}) {
      EXPECT_THAT(Error(ParseIdx(file, "some/file")),
                  AllOf(StartsWith("some/file: "), HasSubstr(part), HasSubstr("truncated")))
          << length;
    }
  }
  const std::string packed = Gzip(bytes);
  for (size_t length = 0; length < packed.size(); ++length) {
    EXPECT_THAT(Error(ParseIdx(packed.substr(0, length), "f.gz")), AllOf(StartsWith("f.gz: "), HasSubstr("truncated")));
  }
}

TEST(IdxTest, TrailingBytes) {
  EXPECT_THAT(Error(ParseIdx(Images(2) + "x", "f")), HasSubstr("f: values (u8[2, 2, 3]): trailing bytes after the 12"));
  EXPECT_THAT(Error(ParseIdx(Gzip(Images(2) + "x"), "f")), HasSubstr("trailing bytes"));
  EXPECT_THAT(Error(ParseIdx(Gzip(Images(2)) + "x", "f")), HasSubstr("followed by 1 other bytes"));
}

TEST(IdxTest, WrongMagicAndTypes) {
  EXPECT_THAT(Error(ParseIdx("PNG?", "f")), HasSubstr("f: magic number: not an IDX file: it begins with bytes 504e"));
  for (int type : {0, 7, 10, 15, 255}) {
    EXPECT_THAT(Error(ParseIdx(Header(type, {1}) + "12345678", "f")),
                HasSubstr(absl::StrCat("f: type: byte ", type, " is none of 8 (u8)")));
  }
  EXPECT_THAT(Error(ParseIdx(Header(8, {}) + "1", "f")), HasSubstr("f: dimensions: there are 0"));
}

TEST(IdxTest, DimensionsThatOverflowOrHoldNothing) {
  const uint32_t most = 0xFFFFFFFF;
  EXPECT_THAT(Error(ParseIdx(Header(8, {most, most, most}), "f")), HasSubstr("f: dimensions: shape [4294967295, "));
  EXPECT_THAT(Error(ParseIdx(Header(14, {1u << 31, 1u << 30}), "f")), HasSubstr("f: dimensions: shape"));
  EXPECT_THAT(Error(ParseIdx(Header(8, std::vector<uint32_t>(255, most)), "f")), HasSubstr("f: dimensions: shape"));
  EXPECT_THAT(Error(ParseIdx(Header(8, {0, 28, 28}), "f")), HasSubstr("f: dimensions: [0, 28, 28] hold no items"));
  EXPECT_THAT(Error(ParseIdx(Header(8, {5, 0}), "f")), HasSubstr("hold no items"));
}

// 2^50 bytes: to allocate them would fail.
TEST(IdxTest, AClaimedSizeIsNotAllocatedBeforeTheDataIsThere) {
  const std::string bytes = Header(8, {1u << 30, 1u << 20}) + "some values";
  EXPECT_THAT(Error(ParseIdx(bytes, "f")),
              HasSubstr("truncated: they take 1125899906842624 bytes, and at most 11 follow"));
  EXPECT_THAT(Error(ParseIdx(Gzip(bytes), "f")), HasSubstr("truncated: they take 1125899906842624 bytes, and at most"));
}

// Zeros pack as tightly as anything can.
TEST(IdxTest, ReadsMuchThatIsPackedTightly) {
  const Tensor tensor = Must(ParseIdx(Gzip(Header(11, {1000, 9999}) + std::string(2 * 9999000, '\0')), "f"));
  EXPECT_EQ(tensor.spec().ToString(), "i32[1000, 9999]");
  EXPECT_EQ(Values<int32_t>(tensor), std::vector<int32_t>(9999000, 0));
}

TEST(IdxTest, ReadsMoreThanOneChunkInOrder) {
  std::string bytes = Header(12, {100000});
  std::vector<int32_t> expected;
  for (int32_t i = 0; i < 100000; ++i) {
    bytes += BigEndian(static_cast<uint32_t>(i), 4);
    expected.push_back(i);
  }
  EXPECT_EQ(Values<int32_t>(Must(ParseIdx(bytes, "f"))), expected);
  EXPECT_THAT(Error(ParseIdx(Gzip(bytes.substr(0, 300000)), "f")), HasSubstr("truncated after 299992 of 400000 bytes"));
}

TEST(IdxTest, UnpackingStopsAtWhatTheHeaderClaims) {
  const std::string bomb = Gzip(Header(8, {4}) + std::string(64 << 20, '\0'));
  EXPECT_THAT(Error(ParseIdx(bomb, "f")), HasSubstr("trailing bytes after the 4"));
}

TEST(IdxDirectoryTest, LoadsBothSplitsRawOrPacked) {
  const TemporaryDirectory directory;
  directory.Write("train-images-idx3-ubyte.gz", Gzip(Images(3)));
  directory.Write("train-labels-idx1-ubyte", Labels(std::string("\0\2\1", 3)));
  directory.Write("t10k-images-idx3-ubyte", Images(1));
  directory.Write("t10k-labels-idx1-ubyte.gz", Gzip(Labels("\1")));
  const Dataset train = Must(LoadIdxDirectory(directory.path(), Split::kTrain));
  EXPECT_EQ(train.size(), 3);
  EXPECT_EQ(Must(train.NumClasses()), 3);
  EXPECT_EQ(Must(train.field("x")).spec().ToString(), "u8[3, 6]");
  EXPECT_THAT(Values<int64_t>(Must(train.field("label"))), ElementsAre(0, 2, 1));
  EXPECT_THAT(Values<float>(Must(train.Gather({0}))[0].values), ElementsAre(0, 0.2f, 0.4f, 0.6f, 0.8f, 1));
  EXPECT_EQ(Must(LoadIdxDirectory(directory.path(), Split::kTest)).size(), 1);
}

TEST(IdxDirectoryTest, CountsThatDifferNameBothFiles) {
  const TemporaryDirectory directory;
  const std::string images = directory.Write("train-images-idx3-ubyte", Images(3));
  const std::string labels = directory.Write("train-labels-idx1-ubyte", Labels("\1\2"));
  EXPECT_EQ(Error(LoadIdxDirectory(directory.path(), Split::kTrain)),
            images + " has 3 images, but " + labels + " has 2 labels");
}

TEST(IdxDirectoryTest, LabelsOutOfRangeAndOfTheWrongKind) {
  const TemporaryDirectory directory;
  directory.Write("train-images-idx3-ubyte", Images(2));
  const std::string labels = directory.Write("train-labels-idx1-ubyte", Labels("\1\12"));
  EXPECT_EQ(Error(LoadIdxDirectory(directory.path(), Split::kTrain, {.classes = 10})),
            labels + ": labels: that of sample 1 is 10, expected 0 to 9");
  EXPECT_THAT(Error(LoadIdxDirectory(directory.path(), Split::kTrain, {.classes = -1})), HasSubstr("classes is -1"));
  directory.Write("train-labels-idx1-ubyte", Header(9, {2}) + "\1\xfc");
  EXPECT_EQ(Error(LoadIdxDirectory(directory.path(), Split::kTrain)),
            labels + ": labels: that of sample 1 is -4, expected 0 or more");
  directory.Write("train-labels-idx1-ubyte", Header(8, {2, 1}) + "\1\2");
  EXPECT_THAT(Error(LoadIdxDirectory(directory.path(), Split::kTrain)), StartsWith(labels + ": labels: u8[2, 1]"));
  directory.Write("train-labels-idx1-ubyte", Labels("\1\2"));
  const std::string images = directory.Write("train-images-idx3-ubyte", Labels("\1\2"));
  EXPECT_THAT(Error(LoadIdxDirectory(directory.path(), Split::kTrain)), StartsWith(images + ": images: u8[2]"));
}

TEST(IdxDirectoryTest, FloatingImagesAreKeptAndCheckedForNan) {
  const TemporaryDirectory directory;
  const std::string images = directory.Write("train-images-idx3-ubyte",
                                             Header(13, {1, 2}) + BigEndian(0x3F800000, 4) + BigEndian(0x7FC00000, 4));
  directory.Write("train-labels-idx1-ubyte", Labels("\1"));
  EXPECT_THAT(Error(LoadIdxDirectory(directory.path(), Split::kTrain)),
              StartsWith(images + ": field 'x' of sample 0, column 1 is nan"));
}

TEST(IdxDirectoryTest, ImagesOfAnyTypeAreF32) {
  const TemporaryDirectory directory;
  directory.Write("train-labels-idx1-ubyte", Labels("\1"));
  const auto load = [&](int type, const std::string& values) {
    directory.Write("train-images-idx3-ubyte", Header(type, {1, 2}) + values);
    return LoadIdxDirectory(directory.path(), Split::kTrain);
  };
  const auto batch = [&](int type, const std::string& values) {
    const Dataset dataset = Must(load(type, values));
    EXPECT_EQ(Must(dataset.field("x")).spec().ToString(), "f32[1, 2]");
    return Values<float>(Must(dataset.Gather({0}))[0].values);
  };
  const auto f64 = [](double value) { return BigEndian(std::bit_cast<uint64_t>(value), 8); };
  EXPECT_THAT(batch(9, "\x7f\xff"), ElementsAre(127, -1));
  EXPECT_THAT(batch(11, "\x01\x02\xff\xfe"), ElementsAre(258, -2));
  EXPECT_THAT(batch(12, BigEndian(1u << 30, 4) + BigEndian(0xFFFFFFFF, 4)), ElementsAre(1 << 30, -1));
  EXPECT_THAT(batch(13, BigEndian(0x3F800000, 4) + BigEndian(0x40000000, 4)), ElementsAre(1, 2));
  EXPECT_THAT(batch(14, f64(0.1) + f64(-1e-300)), ElementsAre(0.1f, 0));
  EXPECT_THAT(Error(load(14, f64(0) + f64(1e300))), HasSubstr("a value of sample 0 is 1e+300, too large for f32"));
  EXPECT_THAT(Error(load(14, f64(0) + f64(INFINITY))), HasSubstr("column 1 is inf"));
}

TEST(IdxDirectoryTest, MissingAndUnreadablePathsAreNamed) {
  const TemporaryDirectory directory;
  EXPECT_THAT(Error(LoadIdxDirectory("no/such/nowhere", Split::kTrain)), StartsWith("no/such/nowhere: No such file"));
  EXPECT_EQ(Error(LoadIdxDirectory(directory.path(), Split::kTest)),
            directory.path() + " has neither t10k-images-idx3-ubyte nor t10k-images-idx3-ubyte.gz");
  const std::string file = directory.Write("train-images-idx3-ubyte", "");
  EXPECT_EQ(Error(LoadIdxDirectory(file, Split::kTrain)), file + " is not a directory");
  EXPECT_THAT(Error(LoadIdxDirectory(directory.path(), Split::kTrain)),
              HasSubstr("neither train-labels-idx1-ubyte nor train-labels-idx1-ubyte.gz"));
  directory.Write("train-labels-idx1-ubyte", Labels("\1"));
  EXPECT_THAT(Error(LoadIdxDirectory(directory.path(), Split::kTrain)),
              StartsWith(file + ": magic number: truncated after 0 of 4 bytes"));
}

TEST(IdxDirectoryTest, ADirectoryWithoutPermissionIsNamed) {
  const TemporaryDirectory directory;
  directory.Write("train-images-idx3-ubyte", Images(1));
  ASSERT_EQ(chmod(directory.path().c_str(), 0), 0);
  // Root may read everything.
  const uid_t user = geteuid();
  ASSERT_EQ(seteuid(user == 0 ? 65534 : user), 0);
  const std::string message = Error(LoadIdxDirectory(directory.path(), Split::kTrain));
  ASSERT_EQ(seteuid(user), 0);
  ASSERT_EQ(chmod(directory.path().c_str(), 0700), 0);
  EXPECT_THAT(message, AllOf(StartsWith(directory.path()), HasSubstr("Permission denied")));
}

}  // namespace
}  // namespace gemmill
