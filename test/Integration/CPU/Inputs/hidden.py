# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Entries that nobody reads have no influence, whatever they hold: what results
are with a NaN or an infinity somewhere, beside what they are without."""

import numpy as np

NUMBERS = (np.nan, np.inf, -np.inf)


def somewhere(rng, arrays, name):
    """A number and where to plant it in an array, if there is a place."""
    shape = arrays[name].shape
    return [(tuple(rng.integers(0, n) for n in shape), rng.choice(NUMBERS))] if arrays[name].size else []


def plant(arrays, name, at, number):
    """The arrays, by name, with `number` in one of them."""
    dirty = {key: array.copy() for key, array in arrays.items()}
    dirty[name][at] = number
    return dirty


def check_hidden(check, found, clean, readers, what, bound=None):
    """Results that do not read a number keep their bits, or, with a bound, differ by
    no more than rounding; all others are no numbers."""
    for result, before, reads in zip(found, clean, readers):
        reads = np.broadcast_to(reads, result.shape)
        kept, unread = result[~reads], before[~reads]
        if bound is None:
            same = kept.tobytes() == unread.tobytes()
            check.require(same, f"{what}: {np.sum(kept != unread)} of {kept.size} that do not read it differ")
        else:
            check.close(kept, unread, bound, f"{what}: what does not read it")
        missed = np.isfinite(result[reads].astype(float))
        check.require(not missed.any(), f"{what}: {missed.sum()} of {missed.size} that read it are numbers")
