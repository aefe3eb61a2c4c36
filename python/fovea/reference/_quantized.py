# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Vector quantization of keys, and codebooks."""

import numpy as np

from ._arguments import _array, _integer, _match

__all__ = ["codebook_accumulate", "codebook_scan", "codebook_update", "commitment_loss", "quantize"]

# Elements of the distances that are held at a time.
_DISTANCES = 1 << 22


def _codebook(codebook, heads, width):
    """Checks codebook [G|1,S,D]; returns it as [G,S,D]."""
    codebook = _array("codebook", codebook, 3, "[G,S,D] or [1,S,D]")
    if codebook.shape[0] not in (1, heads):
        raise ValueError(
            f"codebook: found {codebook.shape[0]} sets, needed 1 or one for each of the "
            f"{heads} heads of k"
        )
    if codebook.shape[1] == 0:
        raise ValueError("codebook: found no codewords, needed at least 1")
    _match("codebook", "width", codebook.shape[2], width)
    return np.broadcast_to(codebook, (heads, *codebook.shape[1:]))


def _codes(codes, shape, num_codes, *, absent=False):
    """Checks codes; with `absent`, -1 is one."""
    codes = np.asarray(codes)
    if codes.dtype.kind not in "iu":
        raise ValueError(f"codes: found element type {codes.dtype}, needed an integer type")
    _match("codes", "shape", codes.shape, tuple(shape))
    wrong = np.argwhere((codes < (-1 if absent else 0)) | (codes >= num_codes))
    if len(wrong):
        position = tuple(int(i) for i in wrong[0])
        raise ValueError(
            f"codes{list(position)}: found {codes[position]}, needed {'-1, or ' * absent}at least 0 and "
            f"below {num_codes}"
        )
    return codes.astype(np.int64)


def quantize(k, codebook, *, mask=None):
    """The nearest codeword of every key and its code, the first of several.

    A distance that is NaN or infinite never wins; without another, the code is 0.
    Tokens that `mask` [B,N] leaves out have code -1 and zeros.
    """
    k = _array("k", k, 4, "[B,G,N,D]")
    B, G, N, D = k.shape
    codebook = _codebook(codebook, G, D)
    S = codebook.shape[1]
    codes = np.zeros((B, G, N), np.int32)
    step = max(1, _DISTANCES // (S * max(D, 1)))
    for b, g in np.ndindex(B, G):
        for first in range(0, N, step):
            rows = slice(first, first + step)
            with np.errstate(invalid="ignore", over="ignore"):
                difference = k[b, g, rows, None, :] - codebook[g]
                distance = np.square(difference).sum(axis=-1)
            distance = np.where(np.isfinite(distance), distance, np.inf)
            # The first of equal numbers; of infinite ones alone, the first of all.
            codes[b, g, rows] = distance.argmin(axis=-1)
    k_hat = np.stack([codebook[g][codes[:, g]] for g in range(G)], axis=1)
    if mask is not None:
        present = np.asarray(mask, bool)[:, None]
        codes = np.where(present, codes, np.int32(-1))
        k_hat = np.where(present[..., None], k_hat, 0.0)
    return k_hat, codes


def commitment_loss(k, codebook, codes):
    """The mean over tokens of |k - C_z|^2, and its gradient in k; the codebook is
    a constant."""
    k = _array("k", k, 4, "[B,G,N,D]")
    B, G, N, D = k.shape
    codebook = _codebook(codebook, G, D)
    codes = _codes(codes, (B, G, N), codebook.shape[1])
    k_hat = np.stack([codebook[g][codes[:, g]] for g in range(G)], axis=1)
    tokens = B * G * N
    difference = k - k_hat
    return np.square(difference).sum() / tokens, 2 * difference / tokens


def codebook_accumulate(codes, values, mean, count):
    """Means and counts of the values with each code, after more tokens.

    The mean of a code with count 0 is not read.
    """
    values = _array("values", values, 4, "[B,G,T,E]")
    B, G, T, E = values.shape
    mean = _array("mean", mean, 4, "[B,G,S,E]").copy()
    S = mean.shape[2]
    _match("mean", "shape", mean.shape, (B, G, S, E))
    codes = _codes(codes, (B, G, T), S, absent=True)
    count = np.asarray(count)
    _match("count", "shape", count.shape, (B, G, S))
    count = count.astype(np.int64)
    for b, g, t in np.ndindex(B, G, T):
        s = codes[b, g, t]
        if s < 0:
            continue
        old = mean[b, g, s] * count[b, g, s] if count[b, g, s] else 0.0
        count[b, g, s] += 1
        mean[b, g, s] = (old + values[b, g, t]) / count[b, g, s]
    return mean, count.astype(np.int32)


def codebook_scan(codes, values, mean, count, *, block, entries=None):
    """The state after 0, 1, 2, ... blocks: [B,G,T,S,E] and [B,G,T,S]."""
    codes, values = np.asarray(codes), np.asarray(values)
    block = _integer("block", block, 1)
    tokens = codes.shape[2]
    if entries is None:
        entries = -(-tokens // block) + 1
    means, counts = [np.asarray(mean, np.float64)], [np.asarray(count, np.int32)]
    for t in range(entries - 1):
        rows = slice(t * block, (t + 1) * block)
        state = codebook_accumulate(codes[:, :, rows], values[:, :, rows], means[-1], counts[-1])
        means.append(state[0])
        counts.append(state[1])
    return np.stack(means, axis=2), np.stack(counts, axis=2)


def _random(seed, number):
    """That number of the generator SplitMix64, as an unsigned integer of 64 bits."""
    bits = (1 << 64) - 1
    x = (seed + (number + 1) * 0x9E3779B97F4A7C15) & bits
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & bits
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & bits
    return x ^ (x >> 31)


def codebook_update(k, codes, sums, counts, *, rate=0.99, min_count=0.0, replace_below=0.0, seed=0):
    """One step of exponentially smoothed k-means: codebook, sums, counts.

    Codewords of counts below `replace_below` are replaced by keys that `seed` chooses.
    """
    k = _array("k", k, 4, "[B,G,N,D]")
    B, G, N, D = k.shape
    sums = _array("sums", sums, 3, "[G,S,D] or [1,S,D]")
    W, S = sums.shape[:2]
    if W not in (1, G):
        raise ValueError(f"sums: found {W} sets, needed 1 or one for each of the {G} heads of k")
    _match("sums", "width", sums.shape[2], D)
    counts = _array("counts", counts, 2, "[G,S] or [1,S]")
    _match("counts", "shape", counts.shape, (W, S))
    codes = _codes(codes, (B, G, N), S, absent=True)
    if not 0 <= rate <= 1:
        raise ValueError(f"rate: found {rate}, needed a number from 0 to 1")
    found_sums, found_counts = np.zeros(sums.shape), np.zeros(counts.shape)
    for g in range(G):
        w = 0 if W == 1 else g
        present = codes[:, g] >= 0
        np.add.at(found_counts[w], codes[:, g][present], 1)
        np.add.at(found_sums[w], codes[:, g][present], k[:, g][present])
    counts = rate * counts + (1 - rate) * found_counts
    sums = rate * sums + (1 - rate) * found_sums
    divisor = np.maximum(counts, min_count) if min_count else counts
    empty = divisor == 0
    codebook = np.where(empty[..., None], 0.0, sums / np.where(empty, 1.0, divisor)[..., None])
    for w, s in np.argwhere(counts < replace_below):
        heads = slice(None) if W == 1 else slice(w, w + 1)
        present = k[:, heads][codes[:, heads] >= 0]
        if len(present):
            codebook[w, s] = present[_random(seed, int(w) * S + int(s)) % len(present)]
            sums[w, s] = replace_below * codebook[w, s]
            counts[w, s] = replace_below
    return codebook, sums, counts
