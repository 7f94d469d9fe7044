// TopK, TakeAlong, AddAlong and AssignRows: which rows of experts the choices of tokens get.
#include <algorithm>
#include <cmath>

#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/prepare.h"
#include "gemmill/runtime/status.h"

namespace gemmill::cpu {
namespace {

// OutOfRange for the first index outside [0, size).
absl::Status CheckIndices(const int64_t* index, int64_t count, int64_t size) {
  for (int64_t i = 0; i < count; ++i) {
    if (index[i] < 0 || index[i] >= size) {
      return OutOfRange("entry ", i, " of the indices is ", index[i], ", expected 0 to ", size - 1);
    }
  }
  return absl::OkStatus();
}

template <typename C>
bool IsLarger(C a, C b) {
  return a > b || (std::isnan(a) && !std::isnan(b));
}

// The k largest of x[0, n), kept sorted as they come: one that comes later must be larger to stand before another.
template <typename T>
void TakeLargest(const T* x, int64_t n, int64_t k, int64_t* index) {
  int64_t found = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto value = Load(x[i]);
    if (found == k && !IsLarger(value, Load(x[index[k - 1]]))) continue;
    int64_t place = found < k ? found++ : k - 1;
    for (; place > 0 && IsLarger(value, Load(x[index[place - 1]])); --place) index[place] = index[place - 1];
    index[place] = i;
  }
}

int64_t Rows(const Spec& spec) { return spec.shape.back() == 0 ? 0 : spec.num_elements() / spec.shape.back(); }

}  // namespace

absl::StatusOr<Kernel> Prepare(const op::TopK& op, Specs in, Specs out) {
  return DispatchFloating(in[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return Kernel{[rows = Rows(out[0]), n = in[0].shape.back(), k = op.k](const KernelArguments& arguments, Stream&) {
      ParallelFor(rows, Grain(1.5 * static_cast<double>(n)), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          TakeLargest(arguments.in<T>(0) + row * n, n, k, arguments.out<int64_t>(0) + row * k);
        }
      });
      return absl::OkStatus();
    }};
  });
}

absl::StatusOr<Kernel> Prepare(const op::TakeAlong&, Specs in, Specs out) {
  return DispatchFloating(in[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return Kernel{[rows = Rows(out[0]), n = in[0].shape.back(), k = out[0].shape.back()](
                      const KernelArguments& arguments, Stream&) {
      const int64_t* index = arguments.in<int64_t>(1);
      GM_RETURN_IF_ERROR(CheckIndices(index, rows * k, n));
      for (int64_t i = 0; i < rows * k; ++i) arguments.out<T>(0)[i] = arguments.in<T>(0)[i / k * n + index[i]];
      return absl::OkStatus();
    }};
  });
}

absl::StatusOr<Kernel> Prepare(const op::AddAlong& op, Specs in, Specs out) {
  return DispatchFloating(in[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return Kernel{[rows = Rows(in[0]), size = op.size, k = in[0].shape.back(), bytes = out[0].bytes()](
                      const KernelArguments& arguments, Stream&) {
      const int64_t* index = arguments.in<int64_t>(1);
      GM_RETURN_IF_ERROR(CheckIndices(index, rows * k, size));
      std::fill_n(arguments.out<char>(0), bytes, char{0});
      T* y = arguments.out<T>(0);
      for (int64_t i = 0; i < rows * k; ++i) {
        T& sum = y[i / k * size + index[i]];
        sum = Store<T>(Load(sum) + Load(arguments.in<T>(0)[i]));
      }
      return absl::OkStatus();
    }};
  });
}

// A counting sort: each choice gets the next row of its expert.
absl::StatusOr<Kernel> Prepare(const op::AssignRows& op, Specs in, Specs) {
  const int64_t tokens = in[0].shape[0];
  const int64_t k = in[0].shape[1];
  return Kernel{[=, experts = op.experts, factor = op.capacity_factor, masked = in.size() > 1](
                    const KernelArguments& arguments, Stream&) {
                  const int64_t* index = arguments.in<int64_t>(0);
                  GM_RETURN_IF_ERROR(CheckIndices(index, tokens * k, experts));
                  const auto counted = [&](int64_t token) { return !masked || arguments.in<uint8_t>(1)[token] != 0; };
                  int64_t* row = arguments.out<int64_t>(0);
                  int64_t* offsets = arguments.out<int64_t>(1);
                  int64_t* counts = arguments.out<int64_t>(2);
                  int64_t* taken = static_cast<int64_t*>(arguments.workspace);
                  std::fill_n(counts, experts, 0);
                  std::fill_n(taken, experts, 0);
                  int64_t unmasked = 0;
                  for (int64_t token = 0; token < tokens; ++token) {
                    if (!counted(token)) continue;
                    ++unmasked;
                    for (int64_t choice = token * k; choice < (token + 1) * k; ++choice) ++counts[index[choice]];
                  }
                  const double share = static_cast<double>(unmasked * k) / static_cast<double>(experts);
                  // A factor that makes it more than there are choices would not be an int64.
                  const double most = std::min(std::ceil(share * factor), static_cast<double>(unmasked * k));
                  const int64_t capacity = factor == 0 ? unmasked * k : static_cast<int64_t>(most);
                  offsets[0] = 0;
                  for (int64_t e = 0; e < experts; ++e) offsets[e + 1] = offsets[e] + std::min(counts[e], capacity);
                  for (int64_t choice = 0; choice < tokens * k; ++choice) {
                    const int64_t expert = index[choice];
                    const bool has_row = counted(choice / k) && taken[expert] < capacity;
                    row[choice] = has_row ? offsets[expert] + taken[expert]++ : -1;
                  }
                  return absl::OkStatus();
                },
                op.experts * SizeOf(DType::kI64)};
}

}  // namespace gemmill::cpu
