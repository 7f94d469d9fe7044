#include "gemmill/runtime/scalar_math.h"
#include "gemmill/runtime/cpu/denormals.h"

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "tests/runtime/run_op.h"

namespace gemmill {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kSmallestDenormal = 1.401298464324817e-45;

using Reference = std::function<double(double)>;

double NormalCdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double NormalPdf(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI); }
double Logistic(double x) { return 1 / (1 + std::exp(-x)); }
double GeluTanhExponent(double x) { return 2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); }

Reference ValueReference(UnaryFn fn) {
  switch (fn) {
    case UnaryFn::kNeg:
      return [](double x) { return -x; };
    case UnaryFn::kAbs:
      return [](double x) { return std::fabs(x); };
    case UnaryFn::kExp:
      return [](double x) { return std::exp(x); };
    case UnaryFn::kLog:
      return [](double x) { return std::log(x); };
    case UnaryFn::kSqrt:
      return [](double x) { return std::sqrt(x); };
    case UnaryFn::kRsqrt:
      return [](double x) { return 1 / std::sqrt(x); };
    case UnaryFn::kTanh:
      return [](double x) { return std::tanh(x); };
    case UnaryFn::kSigmoid:
      return Logistic;
    case UnaryFn::kRelu:
      return [](double x) { return x > 0 ? x : 0; };
    case UnaryFn::kGeluErf:
      return [](double x) { return x * NormalCdf(x); };
    case UnaryFn::kGeluTanh:
      return [](double x) { return x * Logistic(GeluTanhExponent(x)); };
    case UnaryFn::kSilu:
      return [](double x) { return x * Logistic(x); };
    case UnaryFn::kSoftplus:
      return [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); };
    case UnaryFn::kSin:
      return [](double x) { return std::sin(x); };
    case UnaryFn::kCos:
      return [](double x) { return std::cos(x); };
    case UnaryFn::kErf:
      return [](double x) { return std::erf(x); };
  }
  return {};
}

// The derivative at x, whatever Derivative takes.
Reference DerivativeReference(UnaryFn fn) {
  switch (fn) {
    case UnaryFn::kNeg:
      return [](double) { return -1.0; };
    case UnaryFn::kAbs:
      return [](double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : 0.0; };
    case UnaryFn::kExp:
      return [](double x) { return std::exp(x); };
    case UnaryFn::kLog:
      return [](double x) { return 1 / x; };
    case UnaryFn::kSqrt:
      return [](double x) { return 0.5 / std::sqrt(x); };
    case UnaryFn::kRsqrt:
      return [](double x) { return -0.5 / (x * std::sqrt(x)); };
    case UnaryFn::kTanh:
      return [](double x) { return 1 - std::tanh(x) * std::tanh(x); };
    case UnaryFn::kSigmoid:
      return [](double x) { return Logistic(x) * Logistic(-x); };
    case UnaryFn::kRelu:
      return [](double x) { return x > 0 ? 1.0 : 0.0; };
    case UnaryFn::kGeluErf:
      return [](double x) { return NormalCdf(x) + x * NormalPdf(x); };
    case UnaryFn::kGeluTanh:
      return [](double x) {
        const double v = GeluTanhExponent(x);
        const double slope = 2 * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
        return Logistic(v) * (1 + x * slope * Logistic(-v));
      };
    case UnaryFn::kSilu:
      return [](double x) { return Logistic(x) * (1 + x * Logistic(-x)); };
    case UnaryFn::kSoftplus:
      return Logistic;
    case UnaryFn::kSin:
      return [](double x) { return std::cos(x); };
    case UnaryFn::kCos:
      return [](double x) { return -std::sin(x); };
    case UnaryFn::kErf:
      return [](double x) { return 2 / std::sqrt(M_PI) * std::exp(-x * x); };
  }
  return {};
}

std::vector<float> Points(bool positive) {
  std::vector<float> points;
  for (double x : RandomDoubles(4000, -20, 20, 1)) points.push_back(static_cast<float>(x));
  for (double x : RandomDoubles(2000, -110, 90, 2)) points.push_back(static_cast<float>(x));
  for (double x : RandomDoubles(2000, -2, 2, 3)) points.push_back(static_cast<float>(x));
  for (double x : RandomDoubles(1000, -44.5, 30, 4)) points.push_back(static_cast<float>(std::pow(10, x)));
  for (double x : RandomDoubles(1000, -44.5, 2, 5)) points.push_back(static_cast<float>(-std::pow(10, x)));
  if (positive) {
    for (float& x : points) x = std::fabs(x);
  }
  return points;
}

bool IsDefinedForPositiveOnly(UnaryFn fn) {
  return fn == UnaryFn::kLog || fn == UnaryFn::kSqrt || fn == UnaryFn::kRsqrt;
}

// `absolute` on top of 4e-7 relative error.
void ExpectClose(float got, double expected, double absolute, const char* what, float x) {
  if (std::fabs(expected) > std::numeric_limits<float>::max()) {
    EXPECT_EQ(got, expected > 0 ? kInfinity : -kInfinity) << what << "(" << x << ")";
  } else {
    EXPECT_LE(std::fabs(got - expected), 4e-7 * std::fabs(expected) + absolute + 2 * kSmallestDenormal)
        << what << "(" << x << ") = " << got << ", expected " << expected;
  }
}

// Calls body(integral_constant<UnaryFn, fn>) for every function.
template <typename Body>
void ForEachUnaryFn(const Body& body) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    (body(std::integral_constant<UnaryFn, static_cast<UnaryFn>(kIndex)>{}), ...);
  }
  (std::make_integer_sequence<int, kUnaryFnCount>{});
}

TEST(ScalarMath, ValuesHaveSmallRelativeError) {
  ForEachUnaryFn([](auto constant) {
    constexpr UnaryFn kFn = decltype(constant)::value;
    const Reference reference = ValueReference(kFn);
    for (float x : Points(IsDefinedForPositiveOnly(kFn))) {
      ExpectClose(scalar::Apply<kFn>(x), reference(x), 0, FnName(kFn), x);
    }
  });
}

// A derivative that crosses 0 has absolute accuracy there, and one computed from a rounded value what that leaves.
TEST(ScalarMath, DerivativesHaveSmallError) {
  ForEachUnaryFn([](auto constant) {
    constexpr UnaryFn kFn = decltype(constant)::value;
    const bool takes_output = scalar::DerivativeTakesOutput(kFn);
    const Reference reference = DerivativeReference(kFn);
    for (float x : Points(IsDefinedForPositiveOnly(kFn))) {
      const bool saturates = kFn == UnaryFn::kTanh || kFn == UnaryFn::kSigmoid;
      const double absolute = saturates || std::fabs(x) < 2 ? 3e-7 : 0;
      const double expected = reference(x);
      const float got = scalar::Derivative<kFn>(takes_output ? scalar::Apply<kFn>(x) : x);
      ExpectClose(got, expected, absolute + (takes_output ? 1e-6 * std::fabs(expected) : 0), FnName(kFn), x);
    }
  });
}

TEST(ScalarMath, DoublesAreTheStandardLibrarys) {
  ForEachUnaryFn([](auto constant) {
    constexpr UnaryFn kFn = decltype(constant)::value;
    const bool takes_output = scalar::DerivativeTakesOutput(kFn);
    for (double x : RandomDoubles(2000, IsDefinedForPositiveOnly(kFn) ? 0.1 : -30, 30, 6)) {
      const double value = ValueReference(kFn)(x);
      const double derivative = DerivativeReference(kFn)(x);
      EXPECT_LE(std::fabs(scalar::Apply<kFn>(x) - value), 1e-12 * std::fabs(value) + 1e-300) << FnName(kFn) << " " << x;
      EXPECT_LE(std::fabs(scalar::Derivative<kFn>(takes_output ? value : x) - derivative),
                1e-12 * std::fabs(derivative) + 1e-15)
          << FnName(kFn) << " " << x;
    }
  });
}

TEST(ScalarMath, GeluTailsDoNotVanish) {
  EXPECT_NEAR(scalar::GeluErf(-5.0f), -1.43326e-6, 1e-11);
  EXPECT_NEAR(scalar::GeluErf(-6.0f), -5.9195e-9, 1e-13);
  EXPECT_LT(scalar::GeluErf(-13.0f), 0);
  EXPECT_NEAR(scalar::GeluErf(1.0f), 0.8413447, 2e-7);
  EXPECT_NEAR(scalar::GeluTanh(1.0f), 0.8411920, 2e-7);
  EXPECT_NEAR(scalar::GeluTanh(-5.0f), -2.2917e-7, 1e-11);
  EXPECT_NEAR(scalar::Softplus(-20.0f), 2.0611536e-9, 1e-15);
  EXPECT_EQ(scalar::Softplus(100.0f), 100.0f);
}

TEST(ScalarMath, LimitsAtInfinity) {
  struct Limit {
    UnaryFn fn;
    double value_below, value_above, derivative_below, derivative_above;
  };
  const std::vector<Limit> limits = {
      {UnaryFn::kExp, 0, kInfinity, 0, kInfinity},
      {UnaryFn::kTanh, -1, 1, 0, 0},
      {UnaryFn::kSigmoid, 0, 1, 0, 0},
      {UnaryFn::kRelu, 0, kInfinity, 0, 1},
      {UnaryFn::kGeluErf, 0, kInfinity, 0, 1},
      {UnaryFn::kGeluTanh, 0, kInfinity, 0, 1},
      {UnaryFn::kSilu, 0, kInfinity, 0, 1},
      {UnaryFn::kSoftplus, 0, kInfinity, 0, 1},
      {UnaryFn::kErf, -1, 1, 0, 0},
      {UnaryFn::kAbs, kInfinity, kInfinity, -1, 1},
      {UnaryFn::kNeg, kInfinity, -kInfinity, -1, -1},
  };
  const auto check = [&]<typename T>(T infinity) {
    ForEachUnaryFn([&](auto constant) {
      constexpr UnaryFn kFn = decltype(constant)::value;
      const auto derivative = [](T x) {
        return scalar::Derivative<kFn>(scalar::DerivativeTakesOutput(kFn) ? scalar::Apply<kFn>(x) : x);
      };
      for (const Limit& limit : limits) {
        if (limit.fn != kFn) continue;
        EXPECT_EQ(scalar::Apply<kFn>(-infinity), static_cast<T>(limit.value_below)) << FnName(kFn);
        EXPECT_EQ(scalar::Apply<kFn>(infinity), static_cast<T>(limit.value_above)) << FnName(kFn);
        EXPECT_EQ(derivative(-infinity), static_cast<T>(limit.derivative_below)) << FnName(kFn);
        EXPECT_EQ(derivative(infinity), static_cast<T>(limit.derivative_above)) << FnName(kFn);
        for (T huge : {std::numeric_limits<T>::max(), std::numeric_limits<T>::lowest()}) {
          EXPECT_FALSE(std::isnan(scalar::Apply<kFn>(huge))) << FnName(kFn);
          EXPECT_FALSE(std::isnan(derivative(huge))) << FnName(kFn);
        }
      }
    });
  };
  check(kInfinity);
  check(std::numeric_limits<double>::infinity());
}

TEST(ScalarMath, SpecialValues) {
  ForEachUnaryFn([](auto constant) {
    constexpr UnaryFn kFn = decltype(constant)::value;
    EXPECT_TRUE(std::isnan(scalar::Apply<kFn>(kNan))) << FnName(kFn);
    EXPECT_TRUE(std::isnan(scalar::Apply<kFn>(double{kNan}))) << FnName(kFn);
  });
  EXPECT_EQ(scalar::Log(0.0f), -kInfinity);
  EXPECT_EQ(scalar::Log(-0.0f), -kInfinity);
  EXPECT_TRUE(std::isnan(scalar::Log(-1.0f)));
  EXPECT_EQ(scalar::Log(kInfinity), kInfinity);
  EXPECT_EQ(scalar::Log(1.0f), 0.0f);
  EXPECT_EQ(scalar::Exp(0.0f), 1.0f);
  EXPECT_EQ(scalar::Exp(-104.0f), 0.0f);
  EXPECT_EQ(scalar::Exp(88.8f), kInfinity);
  EXPECT_EQ(scalar::GeluErf(0.0f), 0.0f);
  EXPECT_EQ(scalar::Derivative<UnaryFn::kAbs>(0.0f), 0.0f);
  EXPECT_EQ(scalar::Derivative<UnaryFn::kRelu>(0.0f), 0.0f);
  EXPECT_EQ(scalar::Derivative<UnaryFn::kGeluErf>(0.0f), 0.5f);
  EXPECT_EQ(scalar::Derivative<UnaryFn::kGeluTanh>(0.0f), 0.5f);
  EXPECT_EQ(scalar::Derivative<UnaryFn::kSilu>(0.0f), 0.5f);
  EXPECT_EQ(scalar::Tanh(1e-30f), 1e-30f);
  EXPECT_TRUE(std::signbit(scalar::Tanh(-0.0f)));
}

// Vector lanes, the remainder of a vector loop and a call from here, where no vector code is made, agree to the bit.
TEST(ScalarMath, KernelsGiveTheSameBits) {
  for (int64_t count : {1, 7, 16, 31, 250}) {
    std::vector<float> x;
    for (double value : RandomDoubles(count, -30, 20, 7)) x.push_back(static_cast<float>(value));
    const Tensor input = ValueOf(Tensor::From(x, {count}));
    ForEachUnaryFn([&](auto constant) {
      constexpr UnaryFn kFn = decltype(constant)::value;
      const std::vector<float> got = ValueOf(RunOp(op::Unary{kFn}, {input})[0].ToVector<float>());
      const std::vector<float> slope = ValueOf(RunOp(op::UnaryGrad{kFn}, {input, input})[0].ToVector<float>());
      ASSERT_EQ(got.size(), x.size());
      const cpu::FlushDenormals flush;  // as around every kernel
      for (size_t i = 0; i < x.size(); ++i) {
        const float expected = scalar::Apply<kFn>(x[i]);
        const float expected_slope = x[i] * scalar::Derivative<kFn>(x[i]);
        EXPECT_TRUE(got[i] == expected || std::isnan(expected)) << FnName(kFn) << " " << x[i];
        EXPECT_TRUE(slope[i] == expected_slope || std::isnan(expected_slope)) << FnName(kFn) << " " << x[i];
      }
    });
  }
}

TEST(ScalarMath, ExtremesPropagateNan) {
  EXPECT_TRUE(std::isnan(scalar::Apply<BinaryFn::kMax>(kNan, 1.0f)));
  EXPECT_TRUE(std::isnan(scalar::Apply<BinaryFn::kMax>(1.0f, kNan)));
  EXPECT_TRUE(std::isnan(scalar::Apply<BinaryFn::kMin>(kNan, 1.0f)));
  EXPECT_TRUE(std::isnan(scalar::Apply<BinaryFn::kMin>(1.0f, kNan)));
  EXPECT_EQ(scalar::Apply<BinaryFn::kMax>(-kInfinity, 1.0f), 1.0f);
  EXPECT_EQ(scalar::Apply<BinaryFn::kMin>(-kInfinity, 1.0f), -kInfinity);
}

TEST(ScalarMath, PowIsTheStandardLibrarys) {
  for (double a : {-2.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0, std::numeric_limits<double>::infinity()}) {
    for (double b : {-3.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
      const double expected = std::pow(a, b);
      const double got = scalar::Pow(a, b);
      EXPECT_TRUE(got == expected || (std::isnan(got) && std::isnan(expected))) << a << " " << b;
    }
  }
}

}  // namespace
}  // namespace gemmill
