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
