# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sequences that share pages: what they have in common is kept once, and none sees what others append."""

import threading

import numpy as np
import pytest
from conftest import TYPES, check, refused

import fovea
from fovea import reference

PAGE, PAGES, H, G, D, E = 8, 40, 4, 2, 24, 16


class Sequences:
    """A cache, and what each of its sequences should be: pairs of keys and values."""

    def __init__(self, type="float32", layout="bhnd", batch=1):
        self.type, self.layout, self.rng = type, layout, np.random.default_rng(0)
        self.cache = fovea.PagedCache(PAGES, PAGE, G, D, E, batch=batch, dtype=TYPES[type], layout=layout)
        self.tokens = [self.data(0) for _ in range(batch)]

    def data(self, n, batch=1):
        return [self.rng.standard_normal((batch, G, n, width)).astype(TYPES[self.type]) for width in (D, E)]

    def own(self, array):
        return array.swapaxes(1, 2) if self.layout == "bnhd" else array

    def append(self, counts):
        new = self.data(max(counts), len(counts))
        self.cache.append(*map(self.own, new), lengths=counts)
        for b, n in enumerate(counts):
            self.tokens[b] = [np.concatenate([old, x[b : b + 1, :, :n]], 2) for old, x in zip(self.tokens[b], new)]

    def truncate(self, counts):
        self.cache.truncate(counts)
        self.tokens = [[x[:, :, :n] for x in pair] for pair, n in zip(self.tokens, counts)]

    def fork(self, numbers=None):
        other = object.__new__(Sequences)
        other.type, other.layout, other.rng = self.type, self.layout, self.rng
        other.cache = self.cache.fork() if numbers is None else self.cache.fork(numbers)
        numbers = range(len(self.tokens)) if numbers is None else numbers
        other.tokens = [self.tokens[n] if n >= 0 else self.data(0) for n in numbers]
        return other

    def check(self):
        assert self.cache.lengths.tolist() == [k.shape[2] for k, _ in self.tokens]
        q = self.rng.standard_normal((len(self.tokens), H, 2, D)).astype(TYPES[self.type])
        found = self.own(self.cache.attend(self.own(q)))
        for b, pair in enumerate(self.tokens):
            check(found[b : b + 1], reference.dense(q[b : b + 1], *pair, causal=True), self.type)


@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("length", [0, 1, PAGE - 1, PAGE, 3 * PAGE + 5])
def test_a_prompt_is_kept_once(length, type, layout):
    prompt = Sequences(type, layout)
    prompt.append([length])
    whole = -(-length // PAGE)
    assert prompt.cache.free_pages == PAGES - whole
    beams = prompt.fork([0, 0, 0, -1])
    assert beams.cache.free_pages == PAGES - whole and beams.cache.nbytes == prompt.cache.nbytes
    beams.check()
    # The page that is not full becomes one for each; the prompt has it, too.
    beams.append([1, 2, 0, 1])
    own = [-(-(length + n) // PAGE) - length // PAGE for n in (1, 2)]
    assert beams.cache.free_pages == PAGES - whole - sum(own) - 1
    for each in (beams, prompt):
        each.check()
    beams.append([9, 0, 3, 20])
    prompt.append([4])
    for each in (beams, prompt):
        each.check()


def test_beams_are_taken_up_again():
    beams = Sequences(batch=3)
    beams.append([20, 5, 13])
    for numbers in ([1, 1, 0], [2, 0, 2], [0, 1, 1, 1], [3, 0]):
        beams = beams.fork(numbers)
        beams.append([3] * len(numbers))
        beams.check()
    used = {n for k, _ in beams.tokens for n in [k.shape[2]]}
    # The other forks are gone, and so are their pages.
    assert beams.cache.free_pages >= PAGES - sum(-(-n // PAGE) for n in used) * 2
    beams.truncate([0, 0])
    assert beams.cache.free_pages == PAGES


def test_a_shared_page_is_not_written_after_truncation():
    one = Sequences()
    one.append([2 * PAGE])
    two = one.fork()
    two.truncate([PAGE + 3])
    two.append([2])
    assert one.cache.free_pages == two.cache.free_pages == PAGES - 3
    for each in (one, two):
        each.check()
    # Alone with the first page now, it writes there.
    one.truncate([0])
    two.truncate([3])
    two.append([1])
    two.check()
    assert two.cache.free_pages == PAGES - 1


def test_a_fork_outlives_its_source():
    one = Sequences(batch=2)
    one.append([11, 30])
    two = one.fork([1, -1])
    del one.cache
    assert two.cache.free_pages == PAGES - 4
    two.append([9, 9])
    two.check()


def test_files(tmp_path):
    one = Sequences(batch=2)
    one.append([11, 30])
    two = one.fork([1, 1, 0])
    one.append([1, 1])
    two.append([0, 5, 1])
    del one.cache
    two.cache.save(tmp_path / "cache")
    free = two.cache.free_pages
    two.cache = fovea.PagedCache.load(tmp_path / "cache")
    assert two.cache.free_pages == free
    two.check()
    two.append([4, 4, 9])
    two.check()
    # Pages of others are not in the file: three whole ones are shared, of two sequences.
    one = Sequences(batch=2)
    one.append([PAGE, PAGE])
    secret = one.tokens[0][0].tobytes()[:32]
    one.fork([1]).cache.save(tmp_path / "other")
    assert secret not in (tmp_path / "other").read_bytes()


def test_forks_append_at_once():
    """Each in a thread of its own, from a pool that they share."""
    prompt = Sequences()
    prompt.append([5])
    forks = [prompt.fork() for _ in range(8)]

    def append(fork):
        for _ in range(3):
            fork.append([7])

    for fork in forks:
        fork.rng = np.random.default_rng(len(forks))
    threads = [threading.Thread(target=append, args=[fork]) for fork in forks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in (prompt, *forks):
        each.check()
    assert prompt.cache.free_pages == PAGES - 1 - 8 * 4


def test_errors():
    one = Sequences(batch=2)
    one.append([PAGE * 20 - 1, PAGE * 19 + 3])
    two = one.fork()
    new = one.data(1, batch=2)
    assert one.cache.free_pages == 0
    # A token finds place in the last page, but that is shared.
    refused("^k: found tokens for 2 more pages, needed at most 0, those of 40 that are free", one.cache.append, *new)
    for each in (one, two):
        each.check()
    for wrong, message in (
        ([0, 2], r"^sequences: found 2 at \[1\], needed 0 to 1, or -1 for an empty one"),
        ([-2], r"^sequences: found -2 at \[0\]"),
        ([], "^sequences: found none"),
        ([[0]], r"^sequences: found int64 of shape \(1, 1\)"),
        (np.array([0, -1]).astype(np.uint64), "^sequences: found 18446744073709551615, needed -1 or the number of a sequence"),
        ([0.5], r"^sequences: found float64 of shape \(1,\)"),
    ):
        refused(message, one.cache.fork, wrong)
    two.truncate([0, 0])
    two = None
    one.append([1, 1])
    one.check()
