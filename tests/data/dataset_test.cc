#include "gemmill/data/dataset.h"

#include <cmath>
#include <limits>

#include "tests/data/testing.h"

namespace gemmill {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor Floats(const std::vector<float>& values, const Shape& shape) { return Must(Tensor::From(values, shape)); }

TEST(DatasetTest, HoldsNamedFieldsOfOneSize) {
  const Dataset dataset = Numbered(5);
  EXPECT_EQ(dataset.size(), 5);
  EXPECT_THAT(Values<int64_t>(Must(dataset.field("label"))), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(Error(dataset.field("y")), HasSubstr("no field 'y'; there is 'x', 'label'"));
}

TEST(DatasetTest, RefusesFieldsThatDoNotFitTogether) {
  const Tensor two = Floats({1, 2}, {2});
  EXPECT_THAT(Error(Dataset::Create({})), HasSubstr("at least one field"));
  EXPECT_THAT(Error(Dataset::Create({{"", two}})), HasSubstr("no name"));
  EXPECT_THAT(Error(Dataset::Create({{"x", two}, {"x", two}})), HasSubstr("two fields are named 'x'"));
  EXPECT_THAT(Error(Dataset::Create({{"x", two}, {"y", Floats({1, 2, 3}, {3})}})),
              HasSubstr("field 'x' has 2 samples, but field 'y' has 3"));
  EXPECT_THAT(Error(Dataset::Create({{"x", Tensor()}})), HasSubstr("'x' has no dimensions"));
  EXPECT_THAT(Error(Dataset::Create({{"x", Floats({1}, {})}})), HasSubstr("'x' has no dimensions"));
  EXPECT_THAT(Error(Dataset::Create({{"x", Floats({}, {0, 3})}})), HasSubstr("'x' has no samples"));
}

TEST(DatasetTest, NamesTheFirstValueThatIsNotFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x = Floats({0, 1, 2, 3, 4, -inf, std::nanf(""), 7}, {4, 2});
  EXPECT_THAT(Error(Dataset::Create({{"x", x}})), HasSubstr("field 'x' of sample 2, column 1 is -inf"));
  EXPECT_TRUE(Dataset::Create({{"x", x}}, {.check_finite = false}).ok());
  const Tensor halves = Must(Tensor::From(std::vector<bf16>{bf16(1), bf16(std::nanf(""))}, {2}));
  EXPECT_THAT(Error(Dataset::Create({{"h", halves}})), HasSubstr("field 'h' of sample 1, column 0 is"));
  const Tensor doubles = Must(Tensor::From(std::vector<double>{1, 2, std::nan("")}, {3, 1}));
  EXPECT_THAT(Error(Dataset::Create({{"d", doubles}})), HasSubstr("field 'd' of sample 2"));
}

TEST(DatasetTest, CountsClasses) {
  EXPECT_EQ(Must(Numbered(7).NumClasses()), 7);
  const Dataset dataset = Must(Dataset::Create({{"x", Floats({1, 2}, {2})},
                                                {"bad", Must(Tensor::From(std::vector<int32_t>{3, -4}, {2}))},
                                                {"byte", Must(Tensor::From(std::vector<uint8_t>{3, 9}, {2}))}}));
  EXPECT_EQ(Must(dataset.NumClasses("byte")), 10);
  EXPECT_THAT(Error(dataset.NumClasses("bad")), HasSubstr("'bad' of sample 1 is -4"));
  EXPECT_THAT(Error(dataset.NumClasses("x")), HasSubstr("f32[2]; labels of classes are integers"));
  EXPECT_THAT(Error(dataset.NumClasses("label")), HasSubstr("no field 'label'"));
  const Dataset extreme = Must(
      Dataset::Create({{"label", Must(Tensor::From(std::vector<int64_t>{std::numeric_limits<int64_t>::max()}, {1}))}}));
  EXPECT_THAT(Error(extreme.NumClasses()), HasSubstr("9223372036854775807"));
}

TEST(DatasetTest, ClassNamesGiveTheClassCount) {
  const Dataset dataset = Must(Dataset::Create({{"label", Must(Tensor::From(std::vector<int64_t>{0, 1}, {2}))}},
                                               {.class_names = {"cat", "dog", "owl"}}));
  EXPECT_EQ(Must(dataset.NumClasses()), 3);
  EXPECT_THAT(Must(dataset.Slice(0, 1)).class_names(), ElementsAre("cat", "dog", "owl"));
}

TEST(DatasetTest, SlicesAndSubsets) {
  const Dataset dataset = Numbered(6);
  EXPECT_THAT(Values<float>(Must(Must(dataset.Slice(2, 5)).field("x"))), ElementsAre(2, 3, 4));
  EXPECT_THAT(Values<int64_t>(Must(Must(dataset.Subset({5, 0, 5})).field("label"))), ElementsAre(5, 0, 5));
  EXPECT_THAT(Error(dataset.Slice(2, 7)), HasSubstr("samples 2 to 7 of a data set of 6"));
  EXPECT_THAT(Error(dataset.Slice(-1, 3)), HasSubstr("samples -1 to 3"));
  EXPECT_THAT(Error(dataset.Slice(3, 3)), HasSubstr("samples 3 to 3"));
  EXPECT_THAT(Error(dataset.Subset({0, 6})), HasSubstr("sample 6 of a data set of 6"));
  EXPECT_THAT(Error(dataset.Subset({})), HasSubstr("at least one sample"));
}

TEST(DatasetTest, GathersInTheOrderAskedFor) {
  const std::vector<Field> fields = Must(Numbered(4).Gather({3, 1, 1}));
  ASSERT_EQ(fields.size(), 2);
  EXPECT_EQ(fields[0].values.spec().ToString(), "f32[3, 1]");
  EXPECT_THAT(Values<float>(fields[0].values), ElementsAre(3, 1, 1));
  EXPECT_THAT(Values<int64_t>(fields[1].values), ElementsAre(3, 1, 1));
  EXPECT_THAT(Error(Numbered(4).Gather({0, -1})), HasSubstr("sample -1"));
}

TEST(DatasetTest, GathersNoSamples) {
  const Dataset dataset = Must(Numbered(4).WithNormalization("x", Normalization::Scale(2)));
  const std::vector<Field> fields = Must(dataset.Gather({}));
  EXPECT_EQ(fields[0].values.spec().ToString(), "f32[0, 1]");
  EXPECT_EQ(fields[1].values.spec().ToString(), "i64[0]");
}

TEST(DatasetTest, NormalizesWhenGathered) {
  const Dataset bytes =
      Must(Dataset::Create({{"x", Must(Tensor::From(std::vector<uint8_t>{0, 51, 255, 102}, {2, 2}))}}));
  const Dataset scaled = Must(bytes.WithNormalization("x", Normalization::Scale(1.0 / 255)));
  EXPECT_EQ(Must(scaled.field("x")).dtype(), DType::kU8);
  EXPECT_THAT(Values<float>(Must(scaled.Gather({1, 0}))[0].values), ElementsAre(1.0f, 0.4f, 0.0f, 0.2f));
  const Dataset each = Must(bytes.WithNormalization("x", {{0, 51}, {2, 1}}));
  EXPECT_THAT(Values<float>(Must(each.Gather({0, 1}))[0].values), ElementsAre(0, 0, 510, 51));
  EXPECT_THAT(Values<uint8_t>(Must(bytes.Gather({1}))[0].values), ElementsAre(255, 102));
  EXPECT_EQ(Must(each.normalization("x")).shift, (std::vector<double>{0, 51}));
  EXPECT_TRUE(Must(bytes.normalization("x")).empty());
}

TEST(DatasetTest, NormalizesEveryDtype) {
  const auto gathered = [](Tensor values) {
    const Dataset dataset = Must(Dataset::Create({{"x", std::move(values)}}));
    return Must(Must(dataset.WithNormalization("x", {{1}, {0.5}})).Gather({0}))[0].values;
  };
  EXPECT_THAT(Values<float>(gathered(Floats({4}, {1}))), ElementsAre(1.5f));
  EXPECT_THAT(Values<float>(gathered(Must(Tensor::From(std::vector<bf16>{bf16(4)}, {1})))), ElementsAre(1.5f));
  EXPECT_THAT(Values<float>(gathered(Must(Tensor::From(std::vector<int32_t>{-4}, {1})))), ElementsAre(-2.5f));
  EXPECT_THAT(Values<float>(gathered(Must(Tensor::From(std::vector<int64_t>{4}, {1})))), ElementsAre(1.5f));
  EXPECT_THAT(Values<double>(gathered(Must(Tensor::From(std::vector<double>{4}, {1})))), ElementsAre(1.5));
}

TEST(DatasetTest, RefusesNormalizationThatDoesNotFit) {
  const Dataset dataset = Must(Dataset::Create({{"x", Floats({1, 2, 3, 4, 5, 6}, {2, 3})}}));
  EXPECT_THAT(Error(dataset.WithNormalization("x", {{0, 0}, {1, 1}})),
              HasSubstr("2 shifts and 2 scales, expected 1 or 3 of each"));
  EXPECT_THAT(Error(dataset.WithNormalization("x", {{0}, {1, 1, 1}})), HasSubstr("1 shifts and 3 scales"));
  EXPECT_THAT(Error(dataset.WithNormalization("y", Normalization::Scale(1))), HasSubstr("no field 'y'"));
  EXPECT_THAT(Error(dataset.WithNormalization("x", Normalization::Scale(std::nan("")))), HasSubstr("finite"));
}

}  // namespace
}  // namespace gemmill
