// Ops that move values without looking at them. Each is one or more copies between strided layouts.
#include <cstring>
#include <vector>

#include "gemmill/runtime/cpu/dispatch.h"
#include "gemmill/runtime/cpu/loops.h"
#include "gemmill/runtime/cpu/parallel.h"
#include "gemmill/runtime/cpu/prepare.h"

namespace gemmill::cpu {
namespace {

// Array 0 is written, array 1 read.
using CopyLoop = StridedLoop<2>;

// A copy from one place of an input to one of the output; offsets in elements.
struct Copy {
  CopyLoop loop;
  int64_t out_offset = 0;
  int64_t in_offset = 0;
};

// Nanoseconds an element, about.
double CopyCost(size_t element_bytes) { return 0.1 * static_cast<double>(element_bytes); }

template <typename T>
void CopyRuns(const CopyLoop& loop, const T* in, T* out) {
  const int64_t in_stride = loop.inner_stride(1);
  const int64_t out_stride = loop.inner_stride(0);
  ParallelFor(loop.count(), Grain(CopyCost(sizeof(T))), [&](int64_t begin, int64_t end) {
    loop.ForEachRun(begin, end, [=](const CopyLoop::Strides& offsets, int64_t n) {
      T* to = out + offsets[0];
      const T* from = in + offsets[1];
      if (out_stride == 1 && in_stride == 1) {
        std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
      } else if (out_stride == 1 && in_stride == 0) {
        std::fill(to, to + n, *from);
      } else {
        for (int64_t i = 0; i < n; ++i) to[i * out_stride] = from[i * in_stride];
      }
    });
  });
}

// The dimension along which `in` is contiguous, if `out` is so along another: copying such a loop run by run would
// touch a cache line for every element. The number of dimensions if there is none.
size_t TransposedDimension(const CopyLoop& loop) {
  const auto& dimensions = loop.dimensions();
  if (loop.inner_stride(0) != 1 || loop.inner_stride(1) <= 1) return dimensions.size();
  for (size_t d = 0; d + 1 < dimensions.size(); ++d) {
    if (dimensions[d].strides[1] == 1) return d;
  }
  return dimensions.size();
}

// Copies square tiles of the plane of dimensions `d` (contiguous in `in`) and the innermost (contiguous in `out`).
template <typename T>
void CopyTransposed(const CopyLoop& loop, size_t d, const T* in, T* out) {
  constexpr int64_t kTile = 64 / static_cast<int64_t>(sizeof(T));  // a cache line
  const CopyLoop::Dimension row = loop.dimensions()[d];
  const CopyLoop::Dimension column = loop.dimensions().back();
  const int64_t row_tiles = (row.size + kTile - 1) / kTile;
  CopyLoop planes;
  for (size_t k = 0; k + 1 < loop.dimensions().size(); ++k) {
    if (k != d) planes.Add(loop.dimensions()[k].size, loop.dimensions()[k].strides);
  }
  planes.Add(row_tiles, {kTile * row.strides[0], kTile});
  const int64_t planes_inner_out = planes.inner_stride(0);
  const int64_t planes_inner_in = planes.inner_stride(1);
  const double cost = CopyCost(sizeof(T)) * 4 * static_cast<double>(kTile * column.size);
  ParallelFor(planes.count(), Grain(cost), [&](int64_t begin, int64_t end) {
    int64_t item = begin;
    planes.ForEachRun(begin, end, [&](const CopyLoop::Strides& offsets, int64_t n) {
      for (int64_t run = 0; run < n; ++run, ++item) {
        T* to = out + offsets[0] + run * planes_inner_out;
        const T* from = in + offsets[1] + run * planes_inner_in;
        const int64_t rows = std::min(kTile, row.size - item % row_tiles * kTile);
        for (int64_t first = 0; first < column.size; first += kTile) {
          const int64_t last = std::min(column.size, first + kTile);
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = first; j < last; ++j) to[i * row.strides[0] + j] = from[i + j * column.strides[1]];
          }
        }
      }
    });
  });
}

// A kernel that makes copies[i] from input i. An empty output has none: its other dimensions may be of any size.
Kernel CopyKernel(std::vector<Copy> copies, DType dtype) {
  return DispatchBytes(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return Kernel{.run = [copies = std::move(copies)](const KernelArguments& args, Stream&) {
      for (size_t i = 0; i < copies.size(); ++i) {
        const CopyLoop& loop = copies[i].loop;
        if (loop.count() == 0) continue;
        T* out = args.out<T>(0) + copies[i].out_offset;
        const T* in = args.in<T>(i) + copies[i].in_offset;
        const size_t transposed = TransposedDimension(loop);
        if (transposed < loop.dimensions().size()) {
          CopyTransposed(loop, transposed, in, out);
        } else {
          CopyRuns(loop, in, out);
        }
      }
      return absl::OkStatus();
    }};
  });
}

// A shape seen from one axis: [outer, size, inner].
struct AxisView {
  int64_t outer = 1;
  int64_t size = 1;
  int64_t inner = 1;

  AxisView(const Shape& shape, int64_t axis) {
    const size_t middle = static_cast<size_t>(axis);
    for (size_t d = 0; d < shape.size(); ++d) (d < middle ? outer : d == middle ? size : inner) *= shape[d];
  }
};

}  // namespace

absl::StatusOr<Kernel> Prepare(const op::BroadcastTo&, Specs in, Specs out) {
  return CopyKernel({{.loop = BroadcastLoop<1>(out[0].shape, {&in[0].shape})}}, in[0].dtype);
}

absl::StatusOr<Kernel> Prepare(const op::Reshape&, Specs in, Specs) {
  // The output may be the input itself, where there is nothing to copy.
  return Kernel{.run = [bytes = in[0].bytes()](const KernelArguments& args, Stream&) {
    if (args.inputs[0] == args.outputs[0]) return absl::OkStatus();
    ParallelFor(bytes, Grain(CopyCost(1)), [&](int64_t begin, int64_t end) {
      std::memcpy(args.out<char>(0) + begin, args.in<char>(0) + begin, static_cast<size_t>(end - begin));
    });
    return absl::OkStatus();
  }};
}

absl::StatusOr<Kernel> Prepare(const op::Permute& op, Specs in, Specs out) {
  if (out[0].num_elements() == 0) return CopyKernel({}, in[0].dtype);
  const Shape out_strides = ContiguousStrides(out[0].shape);
  const Shape in_strides = ContiguousStrides(in[0].shape);
  Copy copy;
  for (size_t d = 0; d < op.axes.size(); ++d) {
    copy.loop.Add(out[0].shape[d], {out_strides[d], in_strides[static_cast<size_t>(op.axes[d])]});
  }
  return CopyKernel({copy}, in[0].dtype);
}

absl::StatusOr<Kernel> Prepare(const op::Slice& op, Specs in, Specs out) {
  if (out[0].num_elements() == 0) return CopyKernel({}, in[0].dtype);
  const AxisView from(in[0].shape, op.axis);
  const AxisView to(out[0].shape, op.axis);
  Copy copy = {.in_offset = op.start * from.inner};
  copy.loop.Add(to.outer, {to.size * to.inner, from.size * from.inner});
  copy.loop.Add(to.size, {to.inner, to.size == 1 ? 0 : op.step * from.inner});  // one step may be of any size
  copy.loop.Add(to.inner, {1, 1});
  return CopyKernel({copy}, in[0].dtype);
}

absl::StatusOr<Kernel> Prepare(const op::Unslice& op, Specs in, Specs out) {
  if (out[0].num_elements() == 0) return CopyKernel({}, in[0].dtype);
  const AxisView from(in[0].shape, op.axis);
  const AxisView to(out[0].shape, op.axis);
  Copy copy = {.out_offset = op.start * to.inner};
  copy.loop.Add(from.outer, {to.size * to.inner, from.size * from.inner});
  copy.loop.Add(from.size, {from.size <= 1 ? 0 : op.step * to.inner, from.inner});
  copy.loop.Add(from.inner, {1, 1});
  const Kernel scatter = CopyKernel({copy}, in[0].dtype);
  return Kernel{.run = [bytes = out[0].bytes(), scatter](const KernelArguments& args, Stream& stream) {
    ParallelFor(bytes, Grain(CopyCost(1)), [&](int64_t begin, int64_t end) {
      std::memset(args.out<char>(0) + begin, 0, static_cast<size_t>(end - begin));
    });
    return scatter.run(args, stream);
  }};
}

absl::StatusOr<Kernel> Prepare(const op::Concat& op, Specs in, Specs out) {
  if (out[0].num_elements() == 0) return CopyKernel({}, out[0].dtype);
  const AxisView to(out[0].shape, op.axis);
  std::vector<Copy> copies;
  int64_t start = 0;
  for (const Spec& spec : in) {
    const AxisView from(spec.shape, op.axis);
    Copy copy = {.out_offset = start * to.inner};
    copy.loop.Add(from.outer, {to.size * to.inner, from.size * from.inner});
    copy.loop.Add(from.size * from.inner, {1, 1});
    copies.push_back(std::move(copy));
    start += from.size;
  }
  return CopyKernel(std::move(copies), out[0].dtype);
}

}  // namespace gemmill::cpu
