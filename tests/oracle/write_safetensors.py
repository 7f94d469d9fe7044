#!/usr/bin/env python3
"""Writes the .safetensors fixtures beside this file with the reference library. Run only to change them.

Needs torch, numpy and safetensors; made with torch 2.15.0 and safetensors 0.8.0. What each holds is said here alone, and
stated again by the tests that read them.
"""
import pathlib

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent


def save(name, tensors, metadata):
    path = HERE / name
    save_file(tensors, path, metadata=metadata)
    path.chmod(0o644)
    print(f"{name}: {path.stat().st_size} bytes")


def counted(shape, dtype):
    """0.5, 1.5, 2.5, ... (whole numbers for integers), which every type here holds exactly."""
    count = torch.Size(shape).numel()
    return (torch.arange(count) + (0.5 if dtype.is_floating_point else 1)).to(dtype).reshape(shape)


# Every type that Gemmill has, a scalar, an empty tensor, and names that JSON has to escape. One key of metadata: of more,
# the library's order is by chance, and the tests hold Gemmill's own file against this one byte for byte.
save("types.safetensors", {
    "f32": counted((2, 3), torch.float32),
    "bf16": counted((5,), torch.bfloat16),
    "f64": counted((2, 1, 2), torch.float64),
    "i32": counted((3,), torch.int32),
    "i64": counted((2,), torch.int64),
    "u8": counted((7,), torch.uint8),
    "scalar": torch.tensor(0.5),
    "empty": torch.zeros(0, 4),
    "layer \"0\"/\n\u001f\u00e9\u4e2d\U0001f600": counted((1, 1), torch.float32),
}, {"format": "p\"t\n\u00e9"})

# Types that Gemmill has not, beside one that it has.
save("other_types.safetensors", {
    "f16": counted((3,), torch.float16),
    "f8": counted((3,), torch.float32).to(torch.float8_e4m3fn),
    "bool": torch.tensor([True, False]),
    "i8": counted((2,), torch.int8),
    "c64": torch.tensor([1 + 2j], dtype=torch.complex64),
    "f32": counted((2,), torch.float32),
}, None)
