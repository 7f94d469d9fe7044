// The one formula of every scalar function, its derivative, and the two-element functions, for host and device alike.
//
// The f32 forms of all but pow, sin and cos are free of branches, so that loops over them vectorise. The values'
// relative error is at most 4e-7, in the tails too, down to where they become denormal. They use no fused multiply-add
// and no library call whose rounding could differ: compiled with -ffp-contract=off, a vector lane, a loop's remainder
// and a call from anywhere else give the same bits. The f64 forms, which check gradients, use the standard library.
//
// Coefficients are minimax fits, whose ranges and relative errors are given beside them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "gemmill/runtime/op.h"

// Always inlined: a loop over a function that was not would not vectorise, and kernels compiled for this machine's
// instruction set must not leave copies for the linker to give to other code.
#ifdef __CUDACC__
#define GM_HD __host__ __device__ __forceinline__
#else
#define GM_HD [[gnu::always_inline]] inline
#endif

namespace gemmill::scalar {

// c0 + c1 x + c2 x^2 + ...
template <typename T, typename... Rest>
GM_HD T Polynomial(T x, T c0, Rest... rest) {
  if constexpr (sizeof...(rest) == 0) {
    return c0;
  } else {
    return c0 + x * Polynomial(x, rest...);
  }
}

// As std::min and std::max with a bound that is not NaN; a NaN x stays.
template <typename T>
GM_HD T AtMost(T x, T bound) {
  return x > bound ? bound : x;
}
template <typename T>
GM_HD T AtLeast(T x, T bound) {
  return x < bound ? bound : x;
}

// 2^n for -126 <= n <= 127.
GM_HD float PowerOfTwo(int32_t n) { return std::bit_cast<float>(static_cast<uint32_t>(n + 127) << 23); }

// a * e^(hi + lo) for -170 <= hi <= 89, |lo| <= 1 and a of moderate size. It rounds once where the result is denormal,
// which the product of a and a rounded exponential would not.
GM_HD float TimesExp(float a, float hi, float lo = 0) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, which its low bits then hold
  const float shifted = (hi + lo) * 1.44269504f + kRound;
  const float n = shifted - kRound;
  // ln 2 in two parts, the first short enough for its product with n to be exact.
  const float r = ((hi - n * 0.693359375f) + n * 2.12194440e-4f) + lo;
  // e^r on |r| <= 0.35: 3.4e-9.
  const float tail = Polynomial(r, 0.5f, 1.666651219e-01f, 4.166618735e-02f, 8.369598538e-03f, 1.395171857e-03f);
  const float power = 1.0f + (r + r * r * tail);
  const int32_t exponent = static_cast<int32_t>(std::bit_cast<uint32_t>(shifted) - 0x4B400000u);
  const int32_t half = exponent >> 1;
  return a * power * PowerOfTwo(half) * PowerOfTwo(exponent - half);
}
GM_HD double TimesExp(double a, double hi, double lo = 0) { return a * std::exp(hi + lo); }

GM_HD float Exp(float x) { return TimesExp(1.0f, AtMost(AtLeast(x, -150.0f), 89.0f)); }
GM_HD double Exp(double x) { return std::exp(x); }

GM_HD float Log(float x) {
  const bool denormal = x < std::numeric_limits<float>::min();
  const uint32_t bits = std::bit_cast<uint32_t>(denormal ? x * 8388608.0f : x);
  // x = m * 2^e with sqrt(1/2) <= m < sqrt(2).
  const uint32_t offset = bits - 0x3F3504F3u;
  const int32_t exponent = static_cast<int32_t>(offset) >> 23;
  const float e = static_cast<float>(exponent) - (denormal ? 23.0f : 0.0f);
  const float f = std::bit_cast<float>((offset & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f;
  // log(1 + f) = f - f^2 / 2 + f^3 p(f): 5.8e-9.
  const float p = Polynomial(f, 3.333333135e-01f, -2.500081956e-01f, 2.000122666e-01f, -1.662335694e-01f,
                             1.420175880e-01f, -1.316018254e-01f, 1.276157498e-01f, -7.634492964e-02f);
  const float square = f * f;
  const float small = (square * f * p - e * 2.12194440e-4f) - 0.5f * square;
  const float log = (f + small) + e * 0.693359375f;
  const float infinity = std::numeric_limits<float>::infinity();
  const float edge = x == 0 ? -infinity : x < 0 ? std::numeric_limits<float>::quiet_NaN() : x;  // 0, < 0, inf or NaN
  return x > 0 && x < infinity ? log : edge;
}
GM_HD double Log(double x) { return std::log(x); }

// log(1 + e) for 0 <= e <= 1.
GM_HD float LogOnePlus(float e) {
  const float reciprocal = 1.0f / (2.0f + e);
  const float s = e * reciprocal;
  const float square = s * s;
  // atanh(s) = s (1 + s^2 p(s^2)) on 0 <= s <= 1/3: 4.5e-9.
  const float p = Polynomial(square, 3.333320916e-01f, 2.001076192e-01f, 1.400091797e-01f, 1.400592625e-01f);
  return e * ((2.0f * reciprocal) * (1.0f + square * p));
}
GM_HD double LogOnePlus(double e) { return std::log1p(e); }

GM_HD float Tanh(float x) {
  const float magnitude = std::fabs(x);
  const float square = x * x;
  // tanh(x) = x + x^3 p(x^2) on |x| <= 0.625: 4.4e-9.
  const float p =
      Polynomial(square, -3.333328068e-01f, 1.333144158e-01f, -5.373971537e-02f, 2.063908800e-02f, -5.704988260e-03f);
  const float near = magnitude + magnitude * (square * p);
  const float far = 1.0f - 2.0f / (Exp(2.0f * magnitude) + 1.0f);
  return std::copysign(magnitude < 0.625f ? near : far, x);
}
GM_HD double Tanh(double x) { return std::tanh(x); }

inline constexpr double kSqrtHalf = 0.70710678118654752440;
inline constexpr double kInverseSqrtTwoPi = 0.39894228040143267794;

// a * e^(-x^2 / 2) for |x| <= 18. The square is taken in two parts: rounding it would cost the tail its relative
// accuracy.
GM_HD float TimesGaussian(float a, float x) {
  const float high = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xFFFFF000u);
  return TimesExp(a, -0.5f * (high * high), -0.5f * ((x - high) * (x + high)));
}
GM_HD double TimesGaussian(double a, double x) { return TimesExp(a, -0.5 * x * x); }

// P(Z > x) e^(x^2 / 2) of a standard normal Z, for 0 <= x <= 16, as p / (sqrt(2 pi) x p + q): 5.1e-8. Where x is large,
// q is small and the rounding of p cancels.
GM_HD float ScaledNormalTail(float x) {
  const float p = Polynomial(x, 0.5f, 4.776692688e-01f, 2.137187421e-01f, 5.126979947e-02f, 5.787415430e-03f);
  const float q = Polynomial(x, 1.0f, 4.999109805e-01f, 1.289456040e-01f, 1.449560933e-02f);
  return p / ((2.506628275f * x) * p + q);
}

GM_HD float Erf(float x) {
  const float magnitude = std::fabs(x);
  const float square = x * x;
  // erf(x) = x p(x^2) on |x| <= 1: 1.3e-9.
  const float near = magnitude * Polynomial(square, 1.128379107e+00f, -3.761262596e-01f, 1.128358543e-01f,
                                            -2.685381286e-02f, 5.188329611e-03f, -8.010208840e-04f, 7.853908755e-05f);
  const float z = AtMost(magnitude * 1.41421356f, 16.0f);
  const float far = 1.0f - TimesGaussian(2.0f * ScaledNormalTail(z), z);
  return std::copysign(magnitude < 1.0f ? near : far, x);
}
GM_HD double Erf(double x) { return std::erf(x); }

GM_HD float ErfDerivative(float x) {
  const float z = AtMost(std::fabs(x), 12.0f);
  const float high = std::bit_cast<float>(std::bit_cast<uint32_t>(z) & 0xFFFFF000u);
  return TimesExp(1.128379167f, -(high * high), -((z - high) * (z + high)));
}
GM_HD double ErfDerivative(double x) { return 1.12837916709551257390 * std::exp(-x * x); }

// x P(Z < x).
GM_HD float GeluErf(float x) {
  const float z = AtMost(std::fabs(x), 16.0f);
  const float tail = TimesGaussian(z * ScaledNormalTail(z), z);
  return x < 0 ? -tail : x - tail;
}
GM_HD double GeluErf(double x) { return 0.5 * AtLeast(x, -40.0) * std::erfc(-kSqrtHalf * x); }

GM_HD float GeluErfDerivative(float x) {
  const float z = AtMost(std::fabs(x), 16.0f);
  const float tail = TimesGaussian(ScaledNormalTail(z) - z * static_cast<float>(kInverseSqrtTwoPi), z);
  return x < 0 ? tail : 1.0f - tail;
}
GM_HD double GeluErfDerivative(double x) {
  const double z = AtMost(AtLeast(x, -40.0), 40.0);
  return 0.5 * std::erfc(-kSqrtHalf * z) + TimesGaussian(z * kInverseSqrtTwoPi, z);
}

template <typename T>
GM_HD T Sigmoid(T x) {
  const T e = Exp(-std::fabs(x));
  return (x < 0 ? e : T(1)) / (T(1) + e);
}

template <typename T>
GM_HD T Softplus(T x) {
  return AtLeast(x, T(0)) + LogOnePlus(Exp(-std::fabs(x)));
}

// Where e^x is 0 even when it is multiplied by x.
template <typename T>
inline constexpr T kExpIsZero = std::is_same_v<T, float> ? T(-150) : T(-800);

template <typename T>
GM_HD T Silu(T x) {
  const T bounded = AtLeast(x, kExpIsZero<T>);
  const T exponent = -std::fabs(AtMost(bounded, -kExpIsZero<T>));  // as SiluDerivative has it, to be computed once
  const T y = bounded / (T(1) + TimesExp(T(1), exponent));
  return x < 0 ? TimesExp(y, exponent) : y;
}

template <typename T>
GM_HD T SiluDerivative(T x) {
  const T bounded = AtMost(AtLeast(x, kExpIsZero<T>), -kExpIsZero<T>);
  const T exponent = -std::fabs(bounded);
  const T e = TimesExp(T(1), exponent);
  const T larger = T(1) / (T(1) + e);  // the larger of sigmoid(x) and sigmoid(-x)
  const T smaller = e * larger;
  return x < 0 ? TimesExp(larger * (T(1) + bounded * larger), exponent) : larger * (T(1) + bounded * smaller);
}

// The tanh form is x sigmoid(v) with v = 2 sqrt(2 / pi) (x + 0.044715 x^3): v in f64, because the tail is as accurate,
// relatively, as v is absolutely.
inline constexpr double kGeluTanhLinear = 1.59576912160573071176;
inline constexpr double kGeluTanhCubic = 0.044715;

// Where the tanh form is 0 or x, and its v still within the range of TimesExp.
template <typename T>
inline constexpr T kGeluTanhEdge = std::is_same_v<T, float> ? T(12) : T(24);

template <typename T>
GM_HD T GeluTanh(T x) {
  const T z = AtMost(std::fabs(x), kGeluTanhEdge<T>);
  const double wide = z;
  const double v = -kGeluTanhLinear * wide * (1.0 + kGeluTanhCubic * (wide * wide));
  const T high = static_cast<T>(v);
  const T low = static_cast<T>(v - static_cast<double>(high));
  const T e = TimesExp(T(1), high, low);
  return x < 0 ? TimesExp(-z / (T(1) + e), high, low) : x / (T(1) + e);
}

template <typename T>
GM_HD T GeluTanhDerivative(T x) {
  const T z = AtMost(std::fabs(x), kGeluTanhEdge<T>);
  const double wide = z;
  const double square = wide * wide;
  const double v = -kGeluTanhLinear * wide * (1.0 + kGeluTanhCubic * square);
  const T high = static_cast<T>(v);
  const T low = static_cast<T>(v - static_cast<double>(high));
  const T slope = static_cast<T>(kGeluTanhLinear * wide * (1.0 + 3.0 * kGeluTanhCubic * square));  // z v'(z)
  const T e = TimesExp(T(1), high, low);
  const T larger = T(1) / (T(1) + e);
  const T smaller = e * larger;
  return x < 0 ? TimesExp(larger * (T(1) - slope * larger), high, low) : larger * (T(1) + slope * smaller);
}

// Integers wrap around.
template <typename T>
GM_HD T WrapNegate(T x) {
  return static_cast<T>(std::make_unsigned_t<T>(0) - static_cast<std::make_unsigned_t<T>>(x));
}

template <typename T>
GM_HD T Negate(T x) {
  if constexpr (std::is_integral_v<T>)
    return WrapNegate(x);
  else
    return -x;
}

template <typename T>
GM_HD T Abs(T x) {
  if constexpr (std::is_integral_v<T>)
    return x < 0 ? WrapNegate(x) : x;
  else
    return std::fabs(x);
}

template <UnaryFn kFn, typename T>
GM_HD T Apply(T x) {
  if constexpr (kFn == UnaryFn::kNeg) return Negate(x);
  if constexpr (kFn == UnaryFn::kAbs) return Abs(x);
  if constexpr (kFn == UnaryFn::kExp) return Exp(x);
  if constexpr (kFn == UnaryFn::kLog) return Log(x);
  if constexpr (kFn == UnaryFn::kSqrt) return std::sqrt(x);
  if constexpr (kFn == UnaryFn::kRsqrt) return T(1) / std::sqrt(x);
  if constexpr (kFn == UnaryFn::kTanh) return Tanh(x);
  if constexpr (kFn == UnaryFn::kSigmoid) return Sigmoid(x);
  if constexpr (kFn == UnaryFn::kRelu) return AtLeast(x, T(0));
  if constexpr (kFn == UnaryFn::kGeluErf) return GeluErf(x);
  if constexpr (kFn == UnaryFn::kGeluTanh) return GeluTanh(x);
  if constexpr (kFn == UnaryFn::kSilu) return Silu(x);
  if constexpr (kFn == UnaryFn::kSoftplus) return Softplus(x);
  if constexpr (kFn == UnaryFn::kSin) return std::sin(x);
  if constexpr (kFn == UnaryFn::kCos) return std::cos(x);
  if constexpr (kFn == UnaryFn::kErf) return Erf(x);
}

// Whether Derivative takes fn(x) rather than x.
constexpr bool DerivativeTakesOutput(UnaryFn fn) {
  return fn == UnaryFn::kExp || fn == UnaryFn::kSqrt || fn == UnaryFn::kRsqrt || fn == UnaryFn::kTanh ||
         fn == UnaryFn::kSigmoid || fn == UnaryFn::kRelu;
}

// fn'(x), from v = fn(x) where DerivativeTakesOutput(fn), else from v = x. 0 at 0 for abs and relu.
template <UnaryFn kFn, typename T>
GM_HD T Derivative(T v) {
  if constexpr (kFn == UnaryFn::kNeg) return T(-1);
  if constexpr (kFn == UnaryFn::kAbs) return v > 0 ? T(1) : v < 0 ? T(-1) : T(0);
  if constexpr (kFn == UnaryFn::kExp) return v;
  if constexpr (kFn == UnaryFn::kLog) return T(1) / v;
  if constexpr (kFn == UnaryFn::kSqrt) return T(0.5) / v;
  if constexpr (kFn == UnaryFn::kRsqrt) return T(-0.5) * v * v * v;
  if constexpr (kFn == UnaryFn::kTanh) return (T(1) - v) * (T(1) + v);
  if constexpr (kFn == UnaryFn::kSigmoid) return v * (T(1) - v);
  if constexpr (kFn == UnaryFn::kRelu) return v > 0 ? T(1) : T(0);
  if constexpr (kFn == UnaryFn::kGeluErf) return GeluErfDerivative(v);
  if constexpr (kFn == UnaryFn::kGeluTanh) return GeluTanhDerivative(v);
  if constexpr (kFn == UnaryFn::kSilu) return SiluDerivative(v);
  if constexpr (kFn == UnaryFn::kSoftplus) return Sigmoid(v);
  if constexpr (kFn == UnaryFn::kSin) return std::cos(v);
  if constexpr (kFn == UnaryFn::kCos) return -std::sin(v);
  if constexpr (kFn == UnaryFn::kErf) return ErfDerivative(v);
}

// The inner choice is b where either is NaN.
template <typename T>
GM_HD T Max(T a, T b) {
  const T larger = a > b ? a : b;
  return a == a ? larger : a;
}
template <typename T>
GM_HD T Min(T a, T b) {
  const T smaller = a < b ? a : b;
  return a == a ? smaller : a;
}

template <typename T>
GM_HD T Divide(T a, T b) {
  if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
    if (b == T(-1)) return WrapNegate(a);  // the lowest number divided by -1 would trap
  }
  return static_cast<T>(a / b);
}

// a^b for b >= 0.
template <typename T>
GM_HD T IntegerPow(T a, T b) {
  // 64 bits: narrower unsigned types would be multiplied as int, which can overflow.
  uint64_t power = 1;
  for (uint64_t base = static_cast<uint64_t>(a); b > 0; b = static_cast<T>(b >> 1), base *= base) {
    if ((b & 1) != 0) power *= base;
  }
  return static_cast<T>(power);
}

template <typename T>
GM_HD T Pow(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return IntegerPow(a, b);
  else
    return b == T(2) ? a * a : std::pow(a, b);
}

// The comparisons give uint8_t, the others T. Integers wrap around; kDiv needs b != 0 of them, kPow b >= 0.
template <BinaryFn kFn, typename T>
GM_HD auto Apply(T a, T b) {
  using Wrapped = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
  const Wrapped x = static_cast<Wrapped>(a);
  const Wrapped y = static_cast<Wrapped>(b);
  if constexpr (kFn == BinaryFn::kAdd) return static_cast<T>(x + y);
  if constexpr (kFn == BinaryFn::kSub) return static_cast<T>(x - y);
  if constexpr (kFn == BinaryFn::kMul) return static_cast<T>(x * y);
  if constexpr (kFn == BinaryFn::kDiv) return Divide(a, b);
  if constexpr (kFn == BinaryFn::kPow) return Pow(a, b);
  if constexpr (kFn == BinaryFn::kMax) return Max(a, b);
  if constexpr (kFn == BinaryFn::kMin) return Min(a, b);
  if constexpr (kFn == BinaryFn::kEqual) return static_cast<uint8_t>(a == b);
  if constexpr (kFn == BinaryFn::kNotEqual) return static_cast<uint8_t>(a != b);
  if constexpr (kFn == BinaryFn::kLess) return static_cast<uint8_t>(a < b);
  if constexpr (kFn == BinaryFn::kLessEqual) return static_cast<uint8_t>(a <= b);
  if constexpr (kFn == BinaryFn::kGreater) return static_cast<uint8_t>(a > b);
  if constexpr (kFn == BinaryFn::kGreaterEqual) return static_cast<uint8_t>(a >= b);
}

// x as To. Floating to integer truncates towards 0, saturates, and makes 0 of NaN.
template <typename To, typename From>
GM_HD To Convert(From x) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr double kLowest = static_cast<double>(std::numeric_limits<To>::min());
    constexpr To kHalf = std::numeric_limits<To>::max() / 2 + 1;
    constexpr double kBeyond = 2.0 * static_cast<double>(kHalf);  // the largest To + 1, exactly
    const double wide = static_cast<double>(x);
    if (wide != wide) return To(0);
    if (wide <= kLowest) return std::numeric_limits<To>::min();
    if (wide >= kBeyond) return std::numeric_limits<To>::max();
    return static_cast<To>(wide);
  } else {
    return static_cast<To>(x);
  }
}

// x as f32 for rounding further: towards 0 and, where that is not x, with the last bit set ("to odd"), so that what is
// rounded from it to 22 bits or fewer is as if rounded from x at once.
GM_HD float RoundToOdd(double x) {
  const float nearest = static_cast<float>(x);
  const bool beyond = std::fabs(static_cast<double>(nearest)) > std::fabs(x);
  const bool inexact = static_cast<double>(nearest) != x;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(nearest) - (beyond ? 1u : 0u)) | (inexact ? 1u : 0u));
}
GM_HD float RoundToOdd(int64_t x) {
  constexpr int64_t kExact = int64_t{1} << 53;  // up to it every integer is an f64
  const int64_t odd = x & 1023 ? (x >> 10) | 1 : x >> 10;
  return RoundToOdd(x > -kExact && x < kExact ? static_cast<double>(x) : static_cast<double>(odd) * 1024.0);
}

}  // namespace gemmill::scalar
