// Headers that are not what the format asks for, each refused with the field's name.
#include <string>
#include <utility>
#include <vector>

#include "gemmill/runtime/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Error(const std::string& json, int64_t data_bytes = 16) {
  const absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(json, data_bytes);
  if (header.ok()) return "";
  EXPECT_EQ(header.status().code(), absl::StatusCode::kInvalidArgument) << json.substr(0, 200);
  EXPECT_LT(header.status().message().size(), 1000);
  return std::string(header.status().message());
}

// A header of one tensor.
std::string Tensor1(const std::string& shape, const std::string& offsets, const std::string& type = "\"F32\"") {
  return R"({"w":{"dtype":)" + type + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

// A header of u8 tensors, each with its own bytes.
std::string Spans(const std::vector<std::pair<int64_t, int64_t>>& spans) {
  std::string json;
  for (const auto& [begin, end] : spans) {
    json += (json.empty() ? "{\"t" : ",\"t") + std::to_string(json.size()) + R"(":{"dtype":"U8","shape":[)" +
            std::to_string(end - begin) + R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) +
            "]}";
  }
  return json + "}";
}

TEST(SafetensorsHeaderTest, AcceptsWhatTheFormatAllows) {
  EXPECT_EQ(Error(Tensor1("[4]", "[0,16]")), "");
  EXPECT_EQ(Error(Tensor1("[ 2,\n2 ]", "[0, 16]") + "    \n"), "");
  EXPECT_EQ(Error(Tensor1("[]", "[0,4]"), 4), "");
  EXPECT_EQ(Error(Tensor1("[0]", "[0,0]"), 0), "");
  EXPECT_EQ(Error(Tensor1("[9223372036854775807,0,9223372036854775807]", "[0,0]"), 0), "");
  EXPECT_EQ(Error("{}", 0), "");
  EXPECT_EQ(Error(R"({"__metadata__":{}})", 0), "");
  EXPECT_EQ(Error(R"({"":{"shape":[2],"data_offsets":[0,16],"dtype":"I64"},"__metadata__":{"":"\u0000"}})"), "");
  EXPECT_EQ(Error(Spans({{0, 0}, {0, 16}, {16, 16}})), "");
  EXPECT_EQ(Error(Tensor1("[4]", "[0,2]", "\"F4\""), 2), "");
  EXPECT_EQ(Error(Tensor1("[4]", "[0,3]", "\"F6_E2M3\""), 3), "");
  // Writers other than the reference list tensors in any order.
  const absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(Spans({{8, 16}, {0, 8}, {0, 0}}), 16);
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->entries[0].bytes, 0);
  EXPECT_EQ(header->entries[1].offset, 0);
  EXPECT_EQ(header->entries[2].offset, 8);
}

TEST(SafetensorsHeaderTest, NotJson) {
  const std::string good = Tensor1("[4]", "[0,16]");
  for (size_t size = 0; size < good.size(); ++size) EXPECT_NE(Error(good.substr(0, size)), "") << size;
  EXPECT_THAT(Error(""), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(Error(" " + good), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(Error("[1]"), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(Error(good + "{"), HasSubstr("header: not JSON"));
  EXPECT_THAT(Error(good + std::string(1, '\0')), HasSubstr("header: not JSON"));
  EXPECT_THAT(Error(R"({"w":NaN})"), HasSubstr("header: not JSON"));
  EXPECT_THAT(Error(R"({/* w */})"), HasSubstr("header: not JSON"));
  EXPECT_THAT(Error(R"({"a":)" + std::string(100'000, '[')), HasSubstr("tensor 'a': it has an array where an object"));
  EXPECT_NE(Error(std::string(100'000, '[')), "");
  std::string deep = "{";
  for (int i = 0; i < 100'000; ++i) deep += "\"a\":{";
  EXPECT_NE(Error(deep), "");
}

TEST(SafetensorsHeaderTest, NotUtf8) {
  for (const char* name : {"\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe4\xb8"}) {
    EXPECT_THAT(Error(std::string("{\"") + name + R"(":{"dtype":"U8","shape":[16],"data_offsets":[0,16]}})"),
                HasSubstr("not JSON in UTF-8"));
    EXPECT_THAT(Error(std::string(R"({"__metadata__":{"k":")") + name + "\"}}", 0), HasSubstr("not JSON in UTF-8"));
  }
  EXPECT_THAT(Error(R"({"\ud800":{}})"), HasSubstr("not JSON in UTF-8"));
}

TEST(SafetensorsHeaderTest, Fields) {
  EXPECT_THAT(Error(R"({"w":{"shape":[4],"data_offsets":[0,16]}})"), HasSubstr("tensor 'w', 'dtype': missing"));
  EXPECT_THAT(Error(R"({"w":{"dtype":"F32","data_offsets":[0,16]}})"), HasSubstr("'shape': missing"));
  EXPECT_THAT(Error(R"({"w":{"dtype":"F32","shape":[4]}})"), HasSubstr("'data_offsets': missing"));
  EXPECT_THAT(Error(R"({"w":{}})"), HasSubstr("missing"));
  EXPECT_THAT(Error(R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16],"stride":[1]}})"),
              HasSubstr("tensor 'w', 'stride': unknown"));
  EXPECT_THAT(Error(Tensor1("[4]", "[0,16]", "\"F7\"")), HasSubstr("tensor 'w', 'dtype': 'F7' is no type"));
  EXPECT_THAT(Error(Tensor1("[4]", "[0,16]", "\"f32\"")), HasSubstr("'f32' is no type"));
  EXPECT_THAT(Error(Tensor1("[4]", "[0,16]", "7")), HasSubstr("'dtype': it has a number where a string"));
  EXPECT_THAT(Error(Tensor1("\"4\"", "[0,16]")), HasSubstr("'shape': it has a string where an array of numbers"));
  EXPECT_THAT(Error(Tensor1("{}", "[0,16]")), HasSubstr("'shape': it has an object"));
  EXPECT_THAT(Error(Tensor1("[[4]]", "[0,16]")), HasSubstr("'shape': it has an array"));
  EXPECT_THAT(Error(Tensor1("[4]", "[0]")), HasSubstr("'data_offsets': expected two numbers"));
  EXPECT_THAT(Error(Tensor1("[4]", "[]")), HasSubstr("'data_offsets': expected two numbers"));
  EXPECT_THAT(Error(Tensor1("[4]", "[0,16,16]")), HasSubstr("'data_offsets': expected two numbers"));
  for (const char* value : {"null", "true", "1", "\"x\"", "[]", "1.5"}) {
    EXPECT_THAT(Error(std::string("{\"w\":") + value + "}"), AllOf(HasSubstr("tensor 'w'"), HasSubstr("an object")));
  }
}

TEST(SafetensorsHeaderTest, Numbers) {
  for (const char* number : {"-1", "-0", "4.0", "4e0", "1e400", "18446744073709551616", "9223372036854775808",
                             "18446744073709551615", "null", "\"4\"", "false"}) {
    EXPECT_THAT(Error(Tensor1(std::string("[") + number + "]", "[0,16]")), HasSubstr("tensor 'w', 'shape': "))
        << number;
    EXPECT_THAT(Error(Tensor1("[4]", std::string("[0,") + number + "]")), HasSubstr("tensor 'w', 'data_offsets': "));
    EXPECT_THAT(Error(Tensor1("[4]", std::string("[") + number + ",16]")), HasSubstr("tensor 'w', 'data_offsets': "));
  }
}

TEST(SafetensorsHeaderTest, Twice) {
  const std::string entry = R"({"dtype":"U8","shape":[16],"data_offsets":[0,16]})";
  EXPECT_THAT(Error(R"({"w":)" + entry + R"(,"w":)" + entry + "}"), HasSubstr("tensor 'w': it is there twice"));
  EXPECT_THAT(Error(R"({"w":)" + entry + R"(,"\u0077":)" + entry + "}"), HasSubstr("tensor 'w': it is there twice"));
  EXPECT_THAT(Error(R"({"__metadata__":{},"__metadata__":{}})", 0), HasSubstr("__metadata__: it is there twice"));
  EXPECT_THAT(Error(R"({"__metadata__":{"a":"1","a":"1"}})", 0), HasSubstr("__metadata__, 'a': it is there twice"));
  for (const char* field : {R"("dtype":"U8")", R"("shape":[16])", R"("data_offsets":[0,16])"}) {
    std::string twice = entry;
    twice.insert(1, std::string(field) + ",");
    EXPECT_THAT(Error(R"({"w":)" + twice + "}"), HasSubstr("it is there twice"));
  }
}

TEST(SafetensorsHeaderTest, Metadata) {
  for (const char* value : {"1", "null", "true", "1.5", "-1", "{}", "[]"}) {
    EXPECT_THAT(Error(std::string(R"({"__metadata__":{"step":)") + value + "}}", 0),
                AllOf(HasSubstr("__metadata__, 'step': it has "), HasSubstr("where a string belongs")));
  }
  for (const char* value : {"1", "null", "\"x\"", "[]"}) {
    EXPECT_THAT(Error(std::string(R"({"__metadata__":)") + value + "}", 0), HasSubstr("__metadata__: it has "));
  }
}

TEST(SafetensorsHeaderTest, Offsets) {
  EXPECT_THAT(Error(Tensor1("[4]", "[16,0]")), HasSubstr("it begins at 16 and ends before, at 0"));
  EXPECT_THAT(Error(Tensor1("[4]", "[1,17]"), 17), HasSubstr("after a hole"));
  EXPECT_THAT(Error(Spans({{0, 4}, {5, 16}})), HasSubstr("after a hole: the one before it ends at 4"));
  EXPECT_THAT(Error(Spans({{0, 8}, {7, 16}})), HasSubstr("inside the one before it, which ends at 8"));
  EXPECT_THAT(Error(Spans({{0, 16}, {0, 16}})), HasSubstr("inside the one before it"));
  EXPECT_THAT(Error(Spans({{0, 16}, {4, 8}})), HasSubstr("inside the one before it"));
  EXPECT_THAT(Error(Spans({{0, 16}, {8, 8}})), HasSubstr("inside the one before it"));
  EXPECT_THAT(Error(Spans({{0, 12}})), HasSubstr("trailing bytes: its tensors end at byte 12"));
  EXPECT_THAT(Error(Spans({{0, 17}})), HasSubstr("truncated: its tensors end at byte 17"));
  EXPECT_THAT(Error("{}"), HasSubstr("trailing bytes"));
  EXPECT_THAT(Error(Tensor1("[9223372036854775807]", "[0,9223372036854775807]", "\"U8\"")), HasSubstr("'shape': "));
}

TEST(SafetensorsHeaderTest, Sizes) {
  EXPECT_THAT(Error(Tensor1("[3]", "[0,16]")),
              HasSubstr("tensor 'w', 'shape': F32[3] takes 12 bytes, and data_offsets give it 16"));
  EXPECT_THAT(Error(Tensor1("[4]", "[0,16]", "\"F64\"")), HasSubstr("takes 32 bytes"));
  EXPECT_THAT(Error(Tensor1("[4]", "[0,16]", "\"F16\"")), HasSubstr("takes 8 bytes"));
  EXPECT_THAT(Error(Tensor1("[]", "[0,0]"), 0), HasSubstr("takes 4 bytes"));
  EXPECT_THAT(Error(Tensor1("[3]", "[0,1]", "\"F4\""), 1), HasSubstr("no whole number of bytes"));
  for (const char* shape : {"[4294967296,4294967296]", "[2147483648,2147483648,4]", "[4611686018427387905]",
                            "[9223372036854775807,9223372036854775807]", "[1152921504606846977]"}) {
    EXPECT_THAT(Error(Tensor1(shape, "[0,16]")), HasSubstr("more elements than 64 bits can count"));
  }
  std::string ones = "[4";
  for (int i = 0; i < 100'000; ++i) ones += ",1";
  EXPECT_EQ(Error(Tensor1(ones + "]", "[0,16]")), "");
  EXPECT_THAT(Error(Tensor1(ones + ",2]", "[0,16]")), HasSubstr("takes 32 bytes"));
}

TEST(SafetensorsHeaderTest, NamesInErrorsCanBePrinted) {
  EXPECT_THAT(Error(R"({"\u001b[2J\n\u0000":1})"), HasSubstr(R"(tensor '\x1b[2J\n\x00')"));
  EXPECT_THAT(Error("{\"" + std::string(100'000, 'x') + "\":1}"), HasSubstr("xxx...'"));
}

}  // namespace
}  // namespace gemmill
