#include <cmath>
#include <numbers>

#include "gemmill/autograd/ops.h"
#include "gemmill/autograd/vjp.h"
#include "gemmill/runtime/scalar_math.h"

namespace gemmill {
namespace {

// fn'(x) written with the public ops, from fn(x) where DerivativeTakesOutput and from x elsewhere: what
// UnaryGrad multiplies by, in a form that has derivatives of its own.
Var Derivative(UnaryFn fn, const Var& given) {
  const double kSqrt2 = std::numbers::sqrt2;
  const double kDensity = std::numbers::inv_sqrtpi / kSqrt2;  // of the normal distribution at 0
  // Functions that end in a line are one long before this bound; beyond it their parts would be infinity times 0.
  const bool bounded =
      fn == UnaryFn::kGeluErf || fn == UnaryFn::kGeluTanh || fn == UnaryFn::kSilu || fn == UnaryFn::kErf;
  constexpr double kBound = 800;
  const Var v = bounded ? Minimum(Maximum(given, -kBound), kBound) : given;
  const auto normal_density = [&] { return Exp(v * v * -0.5) * kDensity; };
  switch (fn) {
    case UnaryFn::kNeg:
      return Fill(v.shape(), -1, v.dtype(), v.device());
    case UnaryFn::kAbs:
      return Cast(Greater(v, 0.0), v.dtype()) - Cast(Less(v, 0.0), v.dtype());
    case UnaryFn::kExp:
      return v;
    case UnaryFn::kLog:
      return 1.0 / v;
    case UnaryFn::kSqrt:
      return 0.5 / v;
    case UnaryFn::kRsqrt:
      return v * v * v * -0.5;
    case UnaryFn::kTanh:
      return 1.0 - v * v;
    case UnaryFn::kSigmoid:
      return v * (1.0 - v);
    case UnaryFn::kRelu:
      return Cast(Greater(v, 0.0), v.dtype());
    case UnaryFn::kGeluErf:
      return 0.5 * (1.0 + Erf(v * (1 / kSqrt2))) + v * normal_density();
    case UnaryFn::kGeluTanh: {
      const double scale = std::sqrt(2 / std::numbers::pi);
      const Var inner = v * (scale + v * v * (scale * 0.044715));
      const Var tanh = Tanh(inner);
      return 0.5 * (1.0 + tanh) + 0.5 * v * (1.0 - tanh * tanh) * (scale + v * v * (3 * scale * 0.044715));
    }
    case UnaryFn::kSilu: {
      const Var sigmoid = Sigmoid(v);
      return sigmoid * (1.0 + v * (1.0 - sigmoid));
    }
    case UnaryFn::kSoftplus:
      return Sigmoid(v);
    case UnaryFn::kSin:
      return Cos(v);
    case UnaryFn::kCos:
      return -Sin(v);
    case UnaryFn::kErf:
      return Exp(-(v * v)) * (2 * std::numbers::inv_sqrtpi);
  }
  return Var();
}

}  // namespace

Gradients VjpRule(const op::Unary& op, const Site& site) {
  const Var& v = scalar::DerivativeTakesOutput(op.fn) ? site.out[0] : site.in[0];
  return {Apply1(op::UnaryGrad{op.fn}, {v, site.dout[0]}, site.caller)};
}

Gradients VjpRule(const op::UnaryGrad& op, const Site& site) {
  return VjpByComposition(
      site, [&](const std::vector<Var>& in) -> std::vector<Var> { return {in[1] * Derivative(op.fn, in[0])}; });
}

Gradients VjpRule(const op::Binary& op, const Site& site) {
  const Var& a = site.in[0];
  const Var& b = site.in[1];
  const Var& d = site.dout[0];
  Gradients gradients(2);
  const auto set = [&](size_t i, const auto& rule) {
    if (site.wants[i]) gradients[i] = rule();
  };
  switch (op.fn) {
    case BinaryFn::kAdd:
      set(0, [&] { return d; });
      set(1, [&] { return d; });
      break;
    case BinaryFn::kSub:
      set(0, [&] { return d; });
      set(1, [&] { return -d; });
      break;
    case BinaryFn::kMul:
      set(0, [&] { return d * b; });
      set(1, [&] { return d * a; });
      break;
    case BinaryFn::kDiv:
      set(0, [&] { return d / b; });
      set(1, [&] { return -(d * site.out[0] / b); });
      break;
    case BinaryFn::kPow:
      // x^0 is 1 everywhere, and 0^b (b > 0) is flat in b: where the formulas would give 0 times infinity.
      set(0, [&] { return d * Where(Equal(b, 0.0), 0.0, b * Pow(a, b - 1.0)); });
      set(1, [&] {
        const Var zero = Equal(a, 0.0);
        return d * Where(zero, 0.0, site.out[0] * Log(Where(zero, 1.0, a)));
      });
      break;
    case BinaryFn::kMax:
    case BinaryFn::kMin: {
      const auto share = [&](const Var& mine, const Var& other) {
        const Var wins = op.fn == BinaryFn::kMax ? Greater(mine, other) : Less(mine, other);
        return d * (Cast(wins, d.dtype()) + 0.5 * Cast(Equal(mine, other), d.dtype()));
      };
      set(0, [&] { return share(a, b); });
      set(1, [&] { return share(b, a); });
      break;
    }
    case BinaryFn::kEqual:
    case BinaryFn::kNotEqual:
    case BinaryFn::kLess:
    case BinaryFn::kLessEqual:
    case BinaryFn::kGreater:
    case BinaryFn::kGreaterEqual:
      break;  // u8 outputs: Grad never asks
  }
  return gradients;
}

Gradients VjpRule(const op::Where&, const Site& site) {
  const Var& condition = site.in[0];
  Gradients gradients(3);
  if (site.wants[1]) gradients[1] = Where(condition, site.dout[0], 0.0);
  if (site.wants[2]) gradients[2] = Where(condition, 0.0, site.dout[0]);
  return gradients;
}

Gradients VjpRule(const op::Cast&, const Site& site) {
  return {Apply1(op::Cast{site.in[0].dtype()}, {site.dout[0]}, site.caller)};
}

Gradients VjpRule(const op::Dropout& op, const Site& site) {
  return {Apply1(op, {site.dout[0], site.in[1], site.in[2]}, site.caller), Var(), Var()};
}

NotDifferentiable VjpRule(const op::Fill&, const Site&) { return {"it has no inputs"}; }
NotDifferentiable VjpRule(const op::Iota&, const Site&) { return {"it has no inputs"}; }

}  // namespace gemmill
