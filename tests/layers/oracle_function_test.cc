// Functions and their derivatives in f64, against mpmath (unary) and PyTorch.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gemmill/autograd/grad.h"
#include "gemmill/autograd/ops.h"
#include "tests/layers/fixture.h"

namespace gemmill {
namespace {

using nlohmann::json;

Var Leaf(const json& tensor) { return Var::Parameter(FixtureTensor(tensor, DType::kF64)); }
Var GradOf(const Var& loss, const Var& x) { return Grad(loss, {x}, {.differentiable = true})[0]; }

TEST(OracleUnaryTest, ValueAndTwoDerivatives) {
  const json functions = ReadFixture("unary.json")["functions"];
  ASSERT_EQ(functions.size(), static_cast<size_t>(kUnaryFnCount));
  for (int i = 0; i < kUnaryFnCount; ++i) {
    const UnaryFn fn = static_cast<UnaryFn>(i);
    const json& test = functions[static_cast<size_t>(i)];
    ASSERT_EQ(test["fn"].get<std::string>(), FnName(fn));
    SCOPED_TRACE(FnName(fn));
    const std::vector<double> points = test["x"];
    const Var x = Parameter(points, {static_cast<int64_t>(points.size())}, DType::kF64);
    const Var value = Unary(fn, x);
    const Var first = GradOf(Sum(value), x);
    ExpectVar(value, test["value"], 1e-13, 1e-300);
    ExpectVar(first, test["first_derivative"], 1e-13, 1e-16);
    ExpectVar(Grad(Sum(first), {x})[0], test["second_derivative"], 1e-12, 1e-14);
  }
}

TEST(OracleRowwiseTest, TwoOrders) {
  const json fixture = ReadFixture("rowwise.json");
  const std::map<std::string, std::function<Var(const Var&, float epsilon)>> functions{
      {"softmax", [](const Var& x, float) { return Softmax(x); }},
      {"log_softmax", [](const Var& x, float) { return LogSoftmax(x); }},
      {"layer_norm", [](const Var& x, float epsilon) { return LayerNormalize(x, epsilon); }},
      {"rms_norm", [](const Var& x, float epsilon) { return RmsNormalize(x, epsilon); }}};
  for (const auto& [name, function] : functions) {
    SCOPED_TRACE(name);
    const json& test = fixture[name];
    const Var x = Leaf(test["x"]);
    const Var dy = Leaf(test["dy"]);
    const Var y = function(x, test["epsilon"].is_null() ? 0 : test["epsilon"].get<float>());
    const Var dx = GradOf(Sum(y * dy), x);
    const std::vector<Var> second = Grad(Sum(dx * Leaf(test["u"])), {x, dy});
    // The epsilon of an op is an f32.
    ExpectFixture(y, test["y"], 1e-11, 1e-12);
    ExpectFixture(dx, test["dx"], 1e-11, 1e-12);
    ExpectFixture(second[0], test["second_x"], 1e-11, 1e-12);
    ExpectFixture(second[1], test["second_dy"], 1e-11, 1e-12);
  }
}

const std::map<std::string, Var (*)(Located, Located)>& BinaryFunctions() {
  static const auto* const kFunctions =
      new std::map<std::string, Var (*)(Located, Located)>{{"add", [](Located a, Located b) { return a + b; }},
                                                           {"sub", [](Located a, Located b) { return a - b; }},
                                                           {"mul", [](Located a, Located b) { return a * b; }},
                                                           {"div", [](Located a, Located b) { return a / b; }},
                                                           {"pow", Pow},
                                                           {"max", Maximum},
                                                           {"min", Minimum},
                                                           {"equal", Equal},
                                                           {"not_equal", NotEqual},
                                                           {"less", Less},
                                                           {"less_equal", LessEqual},
                                                           {"greater", Greater},
                                                           {"greater_equal", GreaterEqual}};
  return *kFunctions;
}

TEST(OracleBinaryTest, ValuesAndGradients) {
  const json cases = ReadFixture("binary.json")["cases"];
  EXPECT_EQ(cases.size() % BinaryFunctions().size(), 0u);
  for (const json& test : cases) {
    const std::string fn = test["fn"];
    SCOPED_TRACE(fn + " of " + test["a"]["shape"].dump() + ", " + test["b"]["shape"].dump());
    const Var a = Leaf(test["a"]);
    const Var b = Leaf(test["b"]);
    ASSERT_EQ(BinaryFunctions().count(fn), 1u);
    const Var y = BinaryFunctions().at(fn)(a, b);
    ExpectFixture(y, test["y"], 1e-14, 0);
    if (!test.contains("dy")) continue;
    const std::vector<Var> gradients = Grad(Sum(y * Leaf(test["dy"])), {a, b});
    ExpectFixture(gradients[0], test["da"], 1e-13, 1e-14);
    ExpectFixture(gradients[1], test["db"], 1e-13, 1e-14);
  }
}

}  // namespace
}  // namespace gemmill
