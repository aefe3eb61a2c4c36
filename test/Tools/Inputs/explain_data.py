# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays that say what the functions of explain.mlir read: explain_data.py <folder>"""

import pathlib
import sys

import numpy as np

folder = pathlib.Path(sys.argv[1])
np.save(folder / "chosen.npy", np.array([[[[5], [-1], [0]]]], np.int32))
# Of 5 tokens that there are, 3 and 2: 6 + 3 pairs.
np.save(folder / "ids.npy", np.array([[0, 0, 0, 1, 1, 1, 0], [0] * 7], np.int32))
np.save(folder / "wide.npy", np.zeros((2, 7), np.int64))
np.save(folder / "lengths.npy", np.array([5, 7], np.int32))
# Without tokens 3 and 20, 30 * 31 / 2 pairs.
np.save(folder / "mask.npy", np.array([[token not in (3, 20) for token in range(32)]]))
# Query i of batch entry b and head h has blocks (b + h) % 3 and (b + h + 1) % 3, the first of them for a larger product.
queries, means = np.zeros((2, 4, 12, 8), np.float32), np.zeros((2, 4, 3, 8), np.float32)
for b in range(2):
    for h in range(4):
        queries[b, h, :, (b + h) % 3] = 2
        queries[b, h, :, (b + h + 1) % 3] = 1
means[..., :3] = np.eye(3)
np.save(folder / "queries.npy", queries)
np.save(folder / "means.npy", means)
# Keys of a batch entry and a key head are one codeword, b + 2 g, but token 20 is codeword 4.
codewords = np.eye(5, 8, dtype=np.float32)
keys = np.zeros((2, 2, 48, 8), np.float32)
for b in range(2):
    for g in range(2):
        keys[b, g] = codewords[b + 2 * g]
        keys[b, g, 20] = codewords[4]
np.save(folder / "keys.npy", keys)
np.save(folder / "codewords.npy", np.stack([codewords, codewords]))
