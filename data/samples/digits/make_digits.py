#!/usr/bin/env python3
"""Makes this directory's IDX files from digits.csv.gz, the copy of the UCI optical digits that scikit-learn carries.

  make_digits.py .../sklearn/datasets/data/digits.csv.gz OUTPUT_DIRECTORY

Each line holds 64 pixels, 0..16, and the digit. Pixels are stretched to 0..255, as in MNIST. The lines are shuffled
with a fixed seed; the first 1437 become the training set and the other 360 the test set.
"""
import gzip
import pathlib
import random
import struct
import sys

TRAIN = 1437


def write_idx(path, shape, values):
    header = struct.pack(f">HBB{len(shape)}I", 0, 0x08, len(shape), *shape)
    # Neither name nor time in the gzip header: the same values give the same file.
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as compressed:
        compressed.write(header + bytes(values))


def main(source, directory):
    with gzip.open(source, "rt") as lines:
        rows = [[int(float(text)) for text in line.split(",")] for line in lines]
    assert len(rows) == 1797 and all(len(row) == 65 and 0 <= min(row) and max(row) <= 16 for row in rows)
    random.Random(1797).shuffle(rows)
    for name, part in (("train", rows[:TRAIN]), ("t10k", rows[TRAIN:])):
        pixels = [(value * 255 + 8) // 16 for row in part for value in row[:64]]
        output = pathlib.Path(directory)
        write_idx(output / f"{name}-images-idx3-ubyte.gz", (len(part), 8, 8), pixels)
        write_idx(output / f"{name}-labels-idx1-ubyte.gz", (len(part),), [row[64] for row in part])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
