// What passes make of several ops: the same loops, on rows that are still in the cache.
#include <utility>
#include <vector>

#include "gemmill/runtime/cpu/elementwise.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/prepare.h"
#include "gemmill/runtime/cpu/reduce_pass.h"
#include "gemmill/runtime/status.h"

namespace gemmill::cpu {
namespace {

template <typename T>
void AddBias(const T* x, const T* bias, int64_t n, T* y) {
  GM_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) y[j] = Store<T>(Load(x[j]) + Load(bias[j]));
}

struct Epilogue {
  int64_t rows;
  int64_t columns;
  bool bias;
  UnaryLoop activation;  // or null
  double cost;           // nanoseconds an element
};

// sum = x + bias and y = activation(sum), row by row; sum may be x, and y may be either.
template <typename T>
void RunEpilogue(const Epilogue& epilogue, const T* x, const T* bias, T* sum, T* y) {
  const int64_t n = epilogue.columns;
  ParallelFor(epilogue.rows, Grain(epilogue.cost * static_cast<double>(n) + 1), [&](int64_t begin, int64_t end) {
    for (int64_t at = begin * n; at < end * n; at += n) {
      if (epilogue.bias) AddBias(x + at, bias, n, sum + at);
      if (epilogue.activation != nullptr) epilogue.activation(sum, at, at + n, y);
    }
  });
}

}  // namespace

absl::StatusOr<Kernel> Prepare(const op::FusedMatMul& op, Specs in, Specs out) {
  GM_ASSIGN_OR_RETURN(Kernel gemm, Prepare(op.matmul, in.first(2), out.first(1)));
  const int64_t workspace_bytes = gemm.workspace_bytes;
  const int64_t columns = out[0].shape.back();
  const DType dtype = out[0].dtype;
  const double cost = 0.2 + (op.activation.has_value() ? UnaryCost(*op.activation, dtype) : 0);
  const Epilogue epilogue{columns == 0 ? 0 : out[0].num_elements() / columns, columns, op.bias,
                          op.activation.has_value() ? UnaryLoopOf(*op.activation, dtype) : nullptr, cost};
  return DispatchFloating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return Kernel{
        [gemm = std::move(gemm), epilogue, keep = op.keep](const KernelArguments& arguments, Stream& stream) {
          void* const product = arguments.outputs[keep ? 1 : 0];
          GM_RETURN_IF_ERROR(gemm.run({arguments.inputs.first(2), {&product, 1}, arguments.workspace}, stream));
          T* sum = static_cast<T*>(product);
          const T* bias = epilogue.bias ? arguments.in<T>(2) : nullptr;
          RunEpilogue(epilogue, sum, bias, sum, arguments.out<T>(0));
          return absl::OkStatus();
        },
        workspace_bytes};
  });
}

absl::StatusOr<Kernel> Prepare(const op::ActivationBiasGrad& op, Specs in, Specs out) {
  const DType dtype = in[0].dtype;
  const int64_t columns = out[1].num_elements();
  if (in[0].num_elements() == 0) {
    return Kernel{[bytes = out[1].bytes()](const KernelArguments& arguments, Stream&) {
      std::fill_n(arguments.out<char>(1), bytes, char{0});
      return absl::OkStatus();
    }};
  }
  Axes axes;
  for (size_t d = 0; d + 1 < in[0].shape.size(); ++d) axes.push_back(static_cast<int64_t>(d));
  const std::vector<Pass> passes = MakePasses(in[0].shape, axes);
  const UnaryGradLoop grad = UnaryGradLoopOf(op.fn, dtype);
  const int64_t workspace_bytes =
      passes.size() == 1 ? 0 : passes[0].splits * columns * static_cast<int64_t>(sizeof(double));
  return DispatchFloating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return Kernel{[passes, grad, columns](const KernelArguments& arguments, Stream&) {
                    const auto make = [&](int64_t first, int64_t rows, int64_t count) {
                      if (count == columns) {
                        return grad(arguments.inputs[0], arguments.inputs[1], first, first + rows * count,
                                    arguments.outputs[0]);
                      }
                      for (int64_t at = first; at < first + rows * columns; at += columns) {
                        grad(arguments.inputs[0], arguments.inputs[1], at, at + count, arguments.outputs[0]);
                      }
                    };
                    const auto finish = [&](int64_t index, const TotalType<T>* totals, int64_t n) {
                      for (int64_t j = 0; j < n; ++j) arguments.out<T>(1)[index + j] = Finish<T>(totals[j], 1);
                    };
                    if (passes.size() == 1) {
                      RunPass<BinaryFn::kAdd>(passes[0], arguments.out<T>(0), finish, make);
                      return absl::OkStatus();
                    }
                    double* between = static_cast<double*>(arguments.workspace);
                    const auto keep = [&](int64_t index, const TotalType<T>* totals, int64_t n) {
                      std::copy(totals, totals + n, between + index);
                    };
                    RunPass<BinaryFn::kAdd>(passes[0], arguments.out<T>(0), keep, make);
                    RunPass<BinaryFn::kAdd>(passes[1], between, finish);
                    return absl::OkStatus();
                  },
                  workspace_bytes};
  });
}

}  // namespace gemmill::cpu
