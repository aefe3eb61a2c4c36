# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of scores and single queries by kernels of sm_90a, which have warpgroups for narrow types."""

import os

import pytest
import test_lengths
from test_admit import check_tiles_that_gpus_skip, skipping
from test_decode_gpu import OPTIONS, SHAPES, TYPES, case, compare
from test_score import NAMES, check_on_the_emulated_gpu, check_removed_entries

# The emulator reads it when it is first used: these tests need a process of their own.
os.environ["FOVEA_SIMT"] = "chip=sm_90a"


@pytest.mark.parametrize("name", NAMES)
def test_functions_of_scores(name):
    check_on_the_emulated_gpu(name)


@pytest.mark.parametrize("type", ["float32", "bfloat16"])
def test_values_of_removed_entries_are_not_read(type):
    check_removed_entries(type, "gpu-sim")


@pytest.mark.parametrize("type", TYPES)
def test_single_queries(type):
    for shape, name in zip(SHAPES[3:8], OPTIONS):
        arrays, options = case(name, type, shape)
        compare(type, arrays, **options)


@pytest.mark.parametrize("name", list(skipping(2)))
def test_tiles_that_are_skipped(name):
    check_tiles_that_gpus_skip(name, "bfloat16")


@pytest.mark.parametrize("type", ["bfloat16", "float16"])
@pytest.mark.parametrize("case", range(len(test_lengths.SIZES)))
def test_rows_that_do_not_exist_hold_nan(case, type):
    test_lengths.test_dense(case, type, "gpu-sim")
