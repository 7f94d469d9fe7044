// Weights in safetensors files: names, layouts, ties, conversions, and errors that leave the model as it was.
#include "gemmill/layers/weights.h"

#include <string>
#include <vector>

#include "tests/data/testing.h"
#include "tests/layers/training.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class WeightsTest : public testing::Test {
 protected:
  Safetensors Opened() const { return Must(Safetensors::Open(path_)); }

  TemporaryDirectory directory_;
  std::string path_ = directory_.path() + "/model.safetensors";
};

Mlp Model(uint64_t seed, std::vector<int64_t> sizes = {5, 4, 3}, DType dtype = DType::kF32) {
  return Must(Mlp::Create({.sizes = std::move(sizes)}, {.seed = seed, .dtype = dtype}));
}

// Two names for one weight.
class TiedModel : public Module {
 public:
  explicit TiedModel(double value) {
    const Var shared = Parameter({value, value}, {2});
    AddParameter("encoder", shared);
    AddParameter("decoder", shared);
  }
};

TEST_F(WeightsTest, RoundTrip) {
  const Mlp saved = Model(1);
  ASSERT_TRUE(SaveWeights(path_, saved, {{"who", "me"}}).ok());
  const Safetensors file = Opened();
  EXPECT_EQ(file.metadata().at("who"), "me");
  ASSERT_NE(file.Find("fc1.weight"), nullptr);
  EXPECT_EQ(file.Find("fc1.weight")->shape, (Shape{4, 5}));  // [outputs, inputs]
  EXPECT_EQ(file.entries().size(), 4u);
  const Mlp loaded = Model(2);
  EXPECT_NE(Snapshot(loaded), Snapshot(saved));
  ASSERT_TRUE(LoadWeights(file, loaded).ok());
  EXPECT_EQ(Snapshot(loaded), Snapshot(saved));
}

TEST_F(WeightsTest, FrozenParametersAreWeightsToo) {
  const Mlp saved = Model(1);
  ASSERT_TRUE(saved.Freeze([](const std::string& name) { return name == "fc1.weight"; }).ok());
  ASSERT_TRUE(SaveWeights(path_, saved).ok());
  const Mlp loaded = Model(2);
  ASSERT_TRUE(LoadWeights(Opened(), loaded).ok());
  EXPECT_EQ(Snapshot(loaded), Snapshot(saved));
}

TEST_F(WeightsTest, ATiedParameterIsStoredOnceAndFoundUnderAnyOfItsNames) {
  ASSERT_TRUE(SaveWeights(path_, TiedModel(3)).ok());
  ASSERT_EQ(Opened().entries().size(), 1u);
  EXPECT_EQ(Opened().entries()[0].name, "encoder");
  const TiedModel loaded(0);
  ASSERT_TRUE(LoadWeights(Opened(), loaded).ok());
  EXPECT_EQ(Read(loaded.parameter("decoder")), (std::vector<double>{3, 3}));

  const Tensor value = MakeTensor({5, 6}, {2});
  ASSERT_TRUE(WriteSafetensors(path_, {{"decoder", value}}).ok());
  ASSERT_TRUE(LoadWeights(Opened(), loaded).ok());
  EXPECT_EQ(Read(loaded.parameter("encoder")), (std::vector<double>{5, 6}));
}

TEST_F(WeightsTest, NamesOfOthersThroughATable) {
  const WeightNames names{{"fc1.weight", "layers.0.w"}, {"fc2.bias", "head.b"}};
  const Mlp saved = Model(1);
  ASSERT_TRUE(SaveWeights(path_, saved, {}, names).ok());
  EXPECT_NE(Opened().Find("layers.0.w"), nullptr);
  EXPECT_EQ(Opened().Find("fc1.weight"), nullptr);
  const Mlp loaded = Model(2);
  ASSERT_TRUE(LoadWeights(Opened(), loaded, names).ok());
  EXPECT_EQ(Snapshot(loaded), Snapshot(saved));
  EXPECT_THAT(std::string(LoadWeights(Opened(), loaded, {{"fc9.weight", "x"}}).message()), HasSubstr("fc9.weight"));
}

TEST_F(WeightsTest, AllFaultsAreNamedAndNothingChanges) {
  ASSERT_TRUE(SaveWeights(path_, Model(1, {5, 7, 3})).ok());
  const Mlp model = Model(2, {5, 4, 3});
  const auto before = Snapshot(model);
  const std::string message(LoadWeights(Opened(), model).message());
  EXPECT_THAT(message, AllOf(HasSubstr("model.safetensors"), HasSubstr("fc1.weight is F32[7, 5], expected f32[4, 5]"),
                             HasSubstr("fc1.bias"), HasSubstr("fc2.weight")));
  EXPECT_EQ(Snapshot(model), before);

  ASSERT_TRUE(SaveWeights(path_, Model(1, {5, 3})).ok());
  EXPECT_THAT(std::string(LoadWeights(Opened(), model).message()), HasSubstr("fc2.weight is not there"));
  ASSERT_TRUE(SaveWeights(path_, Model(1, {5, 4, 3, 3})).ok());
  EXPECT_THAT(std::string(LoadWeights(Opened(), model).message()), HasSubstr("the model has no fc3.bias"));
  EXPECT_EQ(Snapshot(model), before);
}

TEST_F(WeightsTest, FloatingValuesAreConverted) {
  const Mlp narrow = Model(1, {5, 4, 3}, DType::kBf16);
  ASSERT_TRUE(SaveWeights(path_, narrow).ok());
  EXPECT_EQ(Opened().Find("fc1.weight")->type, "BF16");
  const Mlp wide = Model(2);
  ASSERT_TRUE(LoadWeights(Opened(), wide).ok());
  EXPECT_EQ(Snapshot(wide), Snapshot(narrow));

  ASSERT_TRUE(WriteSafetensors(path_, {{"encoder", MakeTensor({1, 2}, {2}, DType::kI64)}}).ok());
  EXPECT_THAT(std::string(LoadWeights(Opened(), TiedModel(0)).message()), HasSubstr("encoder is I64[2]"));
}

TEST_F(WeightsTest, AModelFileBuildsItsModel) {
  const MlpOptions options{.sizes = {6, 5, 4}, .activation = Activation::kSilu, .bias = false, .dropout = 0.25f};
  const Mlp saved = Must(Mlp::Create(options, {.seed = 3}));
  ASSERT_TRUE(SaveWeights(path_, saved, {{kModelKey, ModelText(options)}}).ok());
  const Safetensors file = Opened();
  const MlpOptions found = Must(MlpOptionsOf(file));
  EXPECT_EQ(found.sizes, options.sizes);
  EXPECT_EQ(found.activation, options.activation);
  EXPECT_EQ(found.bias, options.bias);
  EXPECT_EQ(found.dropout, options.dropout);
  const Mlp loaded = Must(LoadMlp(file));
  EXPECT_EQ(Snapshot(loaded), Snapshot(saved));
}

TEST_F(WeightsTest, HostileModelTextIsAnError) {
  for (
      const char* text :
      {"", "{", "[]", "null", "\"mlp\"", R"({"type":"cnn"})", R"({"type":"mlp"})", R"({"type":"mlp","sizes":3})",
       R"({"type":"mlp","sizes":[1,2.5],"activation":"relu","bias":true,"dropout":0})",
       R"({"type":"mlp","sizes":[1,18446744073709551615],"activation":"relu","bias":true,"dropout":0})",
       R"({"type":"mlp","sizes":[3,2],"activation":"step","bias":true,"dropout":0})",
       R"({"type":"mlp","sizes":[3,2],"activation":"relu","bias":1,"dropout":0})",
       R"({"type":"mlp","sizes":[3,2],"activation":"relu","bias":true,"dropout":2})",
       R"({"type":"mlp","sizes":[-3,2],"activation":"relu","bias":true,"dropout":0})",
       R"({"type":"mlp","sizes":[4611686018427387904,4611686018427387904],"activation":"relu","bias":true,"dropout":0})"}) {
    ASSERT_TRUE(SaveWeights(path_, Model(1), {{kModelKey, text}}).ok());
    EXPECT_THAT(Error(LoadMlp(Opened())), HasSubstr("model.safetensors")) << text;
  }
  ASSERT_TRUE(SaveWeights(path_, Model(1)).ok());
  EXPECT_THAT(Error(LoadMlp(Opened())), HasSubstr("gemmill.model"));
}

}  // namespace
}  // namespace gemmill
