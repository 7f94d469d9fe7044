// CrossEntropy and its gradient, parallel over rows; rows' losses are added in order, in f64. A row that is all -inf
// has infinite loss, as any row whose label's logit is -inf, and gradient 0. Labels are checked before anything is
// written.
#include <algorithm>
#include <cmath>
#include <limits>

#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/prepare.h"
#include "gemmill/runtime/cpu/softmax_row.h"
#include "gemmill/runtime/status.h"

namespace gemmill::cpu {
namespace {

struct Problem {
  int64_t rows;
  int64_t classes;
  int64_t ignore_index;
  double smoothing;
};

template <typename Op>
Problem MakeProblem(const Op& op, const Spec& logits) {
  return {logits.shape[0], logits.shape[1], op.ignore_index, static_cast<double>(op.label_smoothing)};
}

template <typename Label>
absl::Status CheckLabels(const Problem& problem, const Label* labels) {
  for (int64_t row = 0; row < problem.rows; ++row) {
    const int64_t label = labels[row];
    if (label != problem.ignore_index && (label < 0 || label >= problem.classes)) {
      return OutOfRange("the label of row ", row, " is ", label, ", expected 0 to ", problem.classes - 1, ", or ",
                        problem.ignore_index, " to ignore the row");
    }
  }
  return absl::OkStatus();
}

template <typename T>
double MeanOfRow(const T* x, int64_t n) {
  using C = ComputeType<T>;
  RowSum<C> total;
  ForEachLanes<C>(n, [&](int64_t i, auto count) {
    Lanes<C> lanes;
    LoadLanes<C>(x + i, count, C{0}, lanes);
    total.Add(lanes);
  });
  return total.Total() / static_cast<double>(n);
}

// -log softmax of `logit` in a row. logit - shift comes first: it is exact where the two are close.
template <typename C>
double NegativeLog(const RowSoftmax<C>& softmax, double logit) {
  if (softmax.sum == 0) return std::numeric_limits<double>::infinity();
  return softmax.LogSum() - (logit - static_cast<double>(softmax.shift));
}

template <typename T, typename C = ComputeType<T>>
double RowLoss(const Problem& problem, const T* x, int64_t label, const RowSoftmax<C>& softmax) {
  double loss = 0;  // a term whose weight is 0 is left out: it may be infinite
  if (problem.smoothing != 1) {
    loss += (1 - problem.smoothing) * NegativeLog(softmax, static_cast<double>(Load(x[label])));
  }
  if (problem.smoothing != 0) loss += problem.smoothing * NegativeLog(softmax, MeanOfRow(x, problem.classes));
  return loss;
}

template <typename T, typename Label>
absl::Status Run(const Problem& problem, const KernelArguments& arguments) {
  using C = ComputeType<T>;
  const T* x = arguments.in<T>(0);
  const Label* labels = arguments.in<Label>(1);
  C* logsumexp = arguments.out<C>(2);
  double* losses = static_cast<double*>(arguments.workspace);
  GM_RETURN_IF_ERROR(CheckLabels(problem, labels));
  const double cost = (sizeof(T) == 8 ? 6 : 0.4) * static_cast<double>(problem.classes) + 30;
  ParallelFor(problem.rows, Grain(cost), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x_row = x + row * problem.classes;
      const RowSoftmax<C> softmax(x_row, problem.classes);
      logsumexp[row] = softmax.LogSumExp();
      if (labels[row] != problem.ignore_index) losses[row] = RowLoss(problem, x_row, labels[row], softmax);
    }
  });
  double sum = 0;
  int64_t counted = 0;
  for (int64_t row = 0; row < problem.rows; ++row) {
    if (labels[row] == problem.ignore_index) continue;
    sum += losses[row];
    ++counted;
  }
  *arguments.out<C>(0) = static_cast<C>(sum);
  *arguments.out<C>(1) = static_cast<C>(counted);
  return absl::OkStatus();
}

// dx = dsum (softmax - (1 - smoothing) [label] - smoothing / classes). The softmax comes from the row itself: where
// logits are large, a logsumexp in C is too coarse to subtract.
template <typename T, typename C = ComputeType<T>>
void RowGrad(const Problem& problem, const T* x, int64_t label, C dsum, T* dx) {
  const RowSoftmax<C> softmax(x, problem.classes);
  if (softmax.sum == 0) {
    std::fill(dx, dx + problem.classes, T{});
    return;
  }
  const C of_label = static_cast<C>(1 - problem.smoothing);
  const C of_every = static_cast<C>(problem.smoothing / static_cast<double>(problem.classes));
  const C scale = static_cast<C>(1 / softmax.sum);
  const auto exponential = [shift = softmax.shift](C value) { return scalar::Exp(value - shift); };
  const C at_label = exponential(Load(x[label])) * scale - of_every - of_label;
  ForEachLanes<C>(problem.classes, [&](int64_t i, auto count) {
    Lanes<C> lanes;
    LoadLanes<C>(x + i, count, C{0}, lanes, exponential);
    lanes = (lanes * scale - of_every) * dsum;
    StoreLanes<C>(lanes, dx + i, count);
  });
  dx[label] = Store<T>(at_label * dsum);
}

template <typename T, typename Label>
absl::Status RunGrad(const Problem& problem, const KernelArguments& arguments) {
  using C = ComputeType<T>;
  const T* x = arguments.in<T>(0);
  const Label* labels = arguments.in<Label>(1);
  const C dsum = *arguments.in<C>(2);
  T* dx = arguments.out<T>(0);
  GM_RETURN_IF_ERROR(CheckLabels(problem, labels));
  const double cost = (sizeof(T) == 8 ? 10 : 0.6) * static_cast<double>(problem.classes) + 30;
  ParallelFor(problem.rows, Grain(cost), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * problem.classes;
      if (labels[row] == problem.ignore_index) {
        std::fill(dx + at, dx + at + problem.classes, T{});
      } else {
        RowGrad(problem, x + at, labels[row], dsum, dx + at);
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Kernel> Prepare(const op::CrossEntropy& op, Specs in, Specs) {
  const Problem problem = MakeProblem(op, in[0]);
  return DispatchFloating(in[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return DispatchIndex(in[1].dtype, [&](auto label_tag) {
      using Label = typename decltype(label_tag)::Type;
      return Kernel{[problem](const KernelArguments& arguments, Stream&) { return Run<T, Label>(problem, arguments); },
                    problem.rows * static_cast<int64_t>(sizeof(double))};
    });
  });
}

absl::StatusOr<Kernel> Prepare(const op::CrossEntropyGrad& op, Specs in, Specs) {
  const Problem problem = MakeProblem(op, in[0]);
  return DispatchFloating(in[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return DispatchIndex(in[1].dtype, [&](auto label_tag) {
      using Label = typename decltype(label_tag)::Type;
      return Kernel{
          [problem](const KernelArguments& arguments, Stream&) { return RunGrad<T, Label>(problem, arguments); }};
    });
  });
}

}  // namespace gemmill::cpu
