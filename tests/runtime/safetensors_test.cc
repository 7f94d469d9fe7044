#include "gemmill/runtime/safetensors.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kOracle = std::string(GEMMILL_SOURCE_DIR) + "/tests/oracle/";
constexpr char kEscaped[] = "layer \"0\"/\n\x1f\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80";

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class SafetensorsTest : public testing::Test {
 protected:
  SafetensorsTest() : path_(testing::TempDir() + "gemmill_safetensors_" + std::to_string(getpid())) {}
  ~SafetensorsTest() override { std::filesystem::remove(path_); }

  void Write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  std::string Error(const std::string& bytes) const {
    Write(bytes);
    return std::string(Safetensors::Open(path_).status().message());
  }

  std::string path_;
};

template <typename T>
Tensor Make(const std::vector<T>& values, const Shape& shape) {
  return Tensor::From(values, shape).value();
}

std::vector<NamedTensor> AllTypes() {
  std::vector<bf16> halves;
  for (const float value : {0.5F, 1.5F, 2.5F, 3.5F, 4.5F}) halves.emplace_back(value);
  return {{"f32", Make<float>({0.5F, 1.5F, 2.5F, 3.5F, 4.5F, 5.5F}, {2, 3})},
          {"bf16", Make<bf16>(halves, {5})},
          {"f64", Make<double>({0.5, 1.5, 2.5, 3.5}, {2, 1, 2})},
          {"i32", Make<int32_t>({1, 2, 3}, {3})},
          {"i64", Make<int64_t>({1, 2}, {2})},
          {"u8", Make<uint8_t>({1, 2, 3, 4, 5, 6, 7}, {7})},
          {"scalar", Make<float>({0.5F}, {})},
          {"empty", Make<float>({}, {0, 4})},
          {kEscaped, Make<float>({0.5F}, {1, 1})}};
}

void ExpectAllTypes(const Safetensors& file) {
  EXPECT_EQ(file.entries().size(), AllTypes().size());
  for (const auto& [name, tensor] : AllTypes()) {
    const absl::StatusOr<Tensor> read = file.Read(name);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->spec(), tensor.spec());
    EXPECT_EQ(std::memcmp(read->data(), tensor.data(), static_cast<size_t>(tensor.spec().bytes())), 0) << name;
  }
}

TEST_F(SafetensorsTest, ReadsTheReference) {
  const absl::StatusOr<Safetensors> file = Safetensors::Open(kOracle + "types.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->metadata(), ElementsAre(testing::Pair("format", "p\"t\n\xc3\xa9")));
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : file->entries()) names.push_back(entry.name);
  EXPECT_THAT(names, ElementsAre("i64", "f64", "empty", "f32", kEscaped, "scalar", "i32", "bf16", "u8"));
  ExpectAllTypes(*file);
}

TEST_F(SafetensorsTest, WritesTheBytesOfTheReference) {
  ASSERT_TRUE(WriteSafetensors(path_, AllTypes(), {{"format", "p\"t\n\xc3\xa9"}}).ok());
  EXPECT_EQ(ReadBytes(path_), ReadBytes(kOracle + "types.safetensors"));
}

TEST_F(SafetensorsTest, ReadsWhatItWrote) {
  const std::map<std::string, std::string> metadata = {{"", ""}, {"classes", "[\"a\", \"b\"]"}, {"step", "12"}};
  ASSERT_TRUE(WriteSafetensors(path_, AllTypes(), metadata).ok());
  const absl::StatusOr<Safetensors> file = Safetensors::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->metadata(), metadata);
  ExpectAllTypes(*file);
  ASSERT_TRUE(WriteSafetensors(path_, {}).ok());
  EXPECT_EQ(ReadBytes(path_).size(), 16);
  EXPECT_TRUE(Safetensors::Open(path_)->entries().empty());
  ExpectAllTypes(*file);  // the one that was opened
}

TEST_F(SafetensorsTest, ListsTypesThatItCannotRead) {
  const absl::StatusOr<Safetensors> file = Safetensors::Open(kOracle + "other_types.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<std::string> entries;
  for (const SafetensorsEntry& entry : file->entries()) entries.push_back(entry.name + " " + entry.ToString());
  EXPECT_THAT(entries,
              ElementsAre("c64 C64[1]", "f32 F32[2]", "f16 F16[3]", "f8 F8_E4M3[3]", "i8 I8[2]", "bool BOOL[2]"));
  EXPECT_EQ(file->Find("f16")->dtype, std::nullopt);
  EXPECT_EQ(file->Find("f16")->bytes, 6);
  EXPECT_THAT(std::string(file->Read("f16").status().message()),
              AllOf(HasSubstr("other_types.safetensors: tensor 'f16' is F16"), HasSubstr("F32, BF16")));
  EXPECT_THAT(file->Read("f32")->ToVector<float>().value(), ElementsAre(0.5F, 1.5F));
  EXPECT_EQ(file->Find("f"), nullptr);
  EXPECT_EQ(file->Read("f").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(SafetensorsTest, ReadsIntoATensor) {
  const absl::StatusOr<Safetensors> file = Safetensors::Open(kOracle + "types.safetensors");
  Tensor tensor = Tensor::Zeros({{2, 3}, DType::kF32}).value();
  const int64_t version = tensor.buffer()->version();
  ASSERT_TRUE(file->ReadInto("f32", tensor).ok());
  EXPECT_THAT(tensor.ToVector<float>().value(), ElementsAre(0.5F, 1.5F, 2.5F, 3.5F, 4.5F, 5.5F));
  EXPECT_GT(tensor.buffer()->version(), version);
  EXPECT_THAT(std::string(file->ReadInto("f64", tensor).message()),
              AllOf(HasSubstr("'f64' is F64[2, 1, 2]"), HasSubstr("f32[2, 3]")));
  Tensor none;
  EXPECT_FALSE(file->ReadInto("f32", none).ok());
}

TEST_F(SafetensorsTest, RefusesWhatTheFormatCannotHold) {
  const Tensor tensor = Tensor::Zeros({{2}, DType::kF32}).value();
  const auto error = [&](const std::vector<NamedTensor>& tensors, const std::map<std::string, std::string>& metadata) {
    const absl::Status status = WriteSafetensors(path_, tensors, metadata);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), StartsWith("cannot write " + path_));
    EXPECT_FALSE(std::filesystem::exists(path_));
    return std::string(status.message());
  };
  EXPECT_THAT(error({{"w", tensor}, {"b", tensor}, {"w", tensor}}, {}), HasSubstr("two tensors are named 'w'"));
  EXPECT_THAT(error({{"w", Tensor()}}, {}), HasSubstr("'w' is empty"));
  EXPECT_THAT(error({{"__metadata__", tensor}}, {}), HasSubstr("__metadata__"));
  EXPECT_THAT(error({{"w\xff", tensor}}, {}), HasSubstr("'w\\xff' is not UTF-8"));
  EXPECT_THAT(error({}, {{"k\xc3", ""}}), HasSubstr("'k\\xc3' is not UTF-8"));
  EXPECT_THAT(error({}, {{"k", "\xed\xa0\x80"}}), HasSubstr("is not UTF-8"));
  EXPECT_THAT(error({}, {{"k", std::string(100'000'000, 'x')}}), HasSubstr("the format allows 100000000"));
  EXPECT_THAT(std::string(WriteSafetensors("/nowhere/x", {{"w", tensor}}).message()), HasSubstr("/nowhere/x"));
}

TEST_F(SafetensorsTest, TruncatedAtEveryByte) {
  for (const char* name : {"types.safetensors", "other_types.safetensors"}) {
    const std::string whole = ReadBytes(kOracle + name);
    Write(whole);
    for (size_t size = whole.size(); size-- > 0;) {
      std::filesystem::resize_file(path_, size);
      const absl::Status status = Safetensors::Open(path_).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << size;
      EXPECT_THAT(std::string(status.message()), StartsWith(path_ + ": "));
    }
    EXPECT_THAT(Error(whole + "x"), HasSubstr("trailing bytes"));
    EXPECT_EQ(Error(whole), "");
  }
}

TEST_F(SafetensorsTest, RefusesLengthsThatTheFileCannotBack) {
  const auto with_length = [](uint64_t length) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    return bytes + "{}      ";
  };
  EXPECT_EQ(Error(with_length(8)), "");
  for (const uint64_t length : {uint64_t{9}, uint64_t{1} << 31, uint64_t{1} << 32, uint64_t{1} << 63, ~uint64_t{0} - 7,
                                ~uint64_t{0} - 15, ~uint64_t{0}}) {
    EXPECT_THAT(Error(with_length(length)), HasSubstr(": header length: it is " + std::to_string(length))) << length;
  }
  EXPECT_THAT(Error(with_length(0)), HasSubstr("header: it does not begin with '{'"));
  // A file that does have the bytes, none of them on a disk.
  Write(with_length(100'000'001));
  std::filesystem::resize_file(path_, 200'000'000);
  EXPECT_THAT(std::string(Safetensors::Open(path_).status().message()), HasSubstr("the format allows 100000000"));
}

TEST_F(SafetensorsTest, RefusesWhatIsNoFile) {
  EXPECT_EQ(Safetensors::Open(path_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(Safetensors::Open(testing::TempDir()).status().message()), HasSubstr("not a regular file"));
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(std::string(Safetensors::Open(path_).status().message()), HasSubstr("not a regular file"));
}

TEST_F(SafetensorsTest, AFileCutShortWhileItIsOpenIsAnError) {
  std::filesystem::copy_file(kOracle + "types.safetensors", path_);
  const absl::StatusOr<Safetensors> file = Safetensors::Open(path_);
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1);
  EXPECT_TRUE(file->Read("f32").ok());
  EXPECT_THAT(std::string(file->Read("u8").status().message()), HasSubstr("it was cut short while it was read"));
}

}  // namespace
}  // namespace gemmill
