# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which pattern fits: what others than dense attention make of given queries, keys and values."""

from __future__ import annotations

import html
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from . import _fovea
from ._conv import conv
from ._pool import pool
from ._program import Program
from ._quantize import codebook_update, quantize
from ._stream import Source, stream
from ._vq import vq
from .compiler import compile
from .ops import dense, fast_multipole

__all__ = ["Candidate", "Suggestion", "suggest"]

#: Rounds of k-means, from keys at even distances.
_ROUNDS = 10
_COLOURS = {"dense": "#222222", "multipole": "#0072b2", "quantized": "#e69f00", "convolutional": "#009e73", "compressed": "#cc79a7"}


@dataclass(frozen=True)
class Candidate:
    """A form of attention beside dense attention."""

    #: "dense", "multipole", "quantized", "convolutional" or "compressed".
    form: str
    #: Such as "group 32, rank 1".
    setting: str
    #: |out - dense| / |dense|, of all numbers together, and the largest difference over the largest number.
    error: float
    largest: float
    #: Useful floating-point operations, and the median of the times of calls.
    flop: float
    milliseconds: float


@dataclass(frozen=True)
class Suggestion:
    """What `suggest` says of one attention."""

    #: Where a file has it, or empty.
    place: str
    #: Why nothing was compared, or empty.
    reason: str
    #: [B,H,N,D] of the queries, and [B,G,M,D] of the keys.
    q: tuple[int, ...] = ()
    k: tuple[int, ...] = ()
    causal: bool = False
    #: Dense attention, and others from the least error to the largest.
    candidates: tuple[Candidate, ...] = ()

    @property
    def title(self) -> str:
        if self.reason:
            return f"{self.place or 'attention'}: not compared, because {self.reason}"
        kind = "causal attention" if self.causal else "attention"
        return (f"{self.place}: " if self.place else "") + f"{kind}, queries {list(self.q)}, keys {list(self.k)}"

    def __str__(self) -> str:
        """A table."""
        lines = [self.title]
        if self.candidates:
            exact = self.candidates[0]
            lines.append(f"  {'form':<14} {'setting':<24} {'error':>9} {'largest':>9} {'work':>7} {'ms':>9} {'time':>7}")
            for each in self.candidates:
                work, took = each.flop / max(exact.flop, 1), each.milliseconds / exact.milliseconds
                lines.append(
                    f"  {each.form:<14} {each.setting:<24} {each.error:9.2e} {each.largest:9.2e} {work:7.3f}"
                    f" {each.milliseconds:9.3f} {took:7.3f}"
                )
        return "\n".join(lines)

    def json(self) -> dict[str, Any]:
        """Numbers and strings only."""
        return asdict(self)

    def svg(self) -> str:
        """A picture: time against error, dense attention at 1."""
        return _draw(self)


def _time(calls: Sequence[Callable[[], Any]], seconds: float) -> list[float]:
    """The medians of calls in turns, of at least three each, in milliseconds: what else runs slows all of them."""
    times: list[list[float]] = []
    while len(times) < 3 or sum(map(sum, times)) < seconds * len(calls):
        times.append([])
        for call in calls:
            start = time.perf_counter()
            call()
            times[-1].append(time.perf_counter() - start)
    return list(1e3 * np.median(times, axis=0))


def _codebook(k: Any, codes: int) -> Any:
    """Means of `codes` clusters of the keys of each head, [G,codes,D]."""
    B, G, N, D = k.shape
    keys = k.swapaxes(0, 1).reshape(G, B * N, D)
    book = keys[:, np.linspace(0, B * N - 1, codes).astype(int)].copy()
    sums, counts = np.zeros_like(book), np.zeros((G, codes), k.dtype)
    for _ in range(_ROUNDS):
        means, sums, counts = codebook_update(k, quantize(k, book)[1], sums, counts, rate=0.0)
        # A codeword without keys stays where it is.
        book = np.where(counts[:, :, None] > 0, means, book)
    return book


def _averaging(size: int, rank: int, like: Any) -> Any:
    """Weights of `rank` summaries of an interval that are plain means."""
    weights = np.zeros((1, rank, size, like.shape[3]), like.dtype)
    for part in range(rank):
        weights[:, part, part * size // rank : (part + 1) * size // rank] = rank / size
    return weights


def _compressed(q: Any, k: Any, v: Any, size: int, causal: bool, scale: float) -> Any:
    """Means of `size` tokens, each counted as often; under a mask, the block of a query and the one before it as they are."""
    means = [pool(x, np.zeros_like(x), interval=size) for x in (k, v)]
    rows = means[0].shape[2]
    weight = np.full((1, 1, rows), math.log(size), k.dtype)
    if not causal:
        rest = Source(k, v, ranges=lambda b, m, n: (rows * size, m))
        return stream(q, [Source(*means, log_weight=weight), rest], scale=scale)
    far = Source(*means, log_weight=weight, ranges=lambda b, m, n: (0, b - 1))
    near = Source(k, v, causal=True, ranges=lambda b, m, n: (size * b - size, size * b + size))
    return stream(q, [far, near], block=size, scale=scale)


def _forms(q: Any, k: Any, v: Any, causal: bool, scale: float) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Forms that these shapes allow, at settings that cost less than all pairs."""
    N, M = q.shape[2], k.shape[2]
    groups = [group for group in (16, 32, 64, 128) if N == M and 4 * group <= N]
    for group, rank in product(groups, (1, 4)):
        levels = range(math.ceil(math.log2(N / group)) - 1)
        weights = [[_averaging(group << level, rank, x) for level in levels] for x in (k, v)]
        call = partial(fast_multipole, q, k, v, *weights, group=group, causal=causal, scale=scale)
        yield "multipole", f"group {group}, rank {rank}", call
    for codes in (16, 64, 256):
        if N == M and 2 * codes <= N * k.shape[0]:
            call = partial(vq, q, k, v, _codebook(k, codes), block=min(64, N), causal=causal, scale=scale)
            yield "quantized", f"{codes} codewords", call
    for basis in (4, 16):
        if N == M and causal and 4 * basis <= N:
            call = partial(conv, q, k, v, num_basis=basis, window=min(8, N), delta=0.1, epsilon=0.0, scale=scale)
            yield "convolutional", f"{basis} convolutions", call
    for size in (4, 16, 64):
        if 4 * size <= M and (N == M or not causal):
            yield "compressed", f"means of {size}", partial(_compressed, q, k, v, size, causal, scale)


def _run(call: Callable[[], Any]) -> tuple[Any, float]:
    """Its output, and the work of the kernels that it runs."""
    outs: list[Any] = []
    kernels = _fovea.record_kernels(lambda: outs.append(call()))
    return np.asarray(outs[0], np.float64), sum(_fovea.count_flops(kernel, shapes) or 0 for kernel, shapes, *_ in kernels)


def _compare(place: str, q: Any, k: Any, v: Any, causal: bool, scale: float, seconds: float) -> Suggestion:
    narrow = q.dtype not in (np.float32, np.float64)
    q, k, v = (np.ascontiguousarray(x, np.float32 if narrow else x.dtype) for x in (q, k, v))
    forms: list[tuple[str, str, Callable[[], Any]]] = [("dense", "exact", partial(dense, q, k, v, causal=causal, scale=scale))]
    forms += _forms(q, k, v, causal, scale)
    outs, flops = zip(*[_run(call) for _, _, call in forms])
    exact = outs[0]
    if not np.isfinite(exact).all() or not exact.any():
        return Suggestion(place, "its output has no finite numbers other than zero", q.shape, k.shape, causal)
    measured = [
        Candidate(
            form, setting, float(np.linalg.norm(out - exact) / np.linalg.norm(exact)),
            float(np.abs(out - exact).max() / np.abs(exact).max()), float(flop), float(took),
        )
        for (form, setting, _), out, flop, took in zip(forms, outs, flops, _time([call for _, _, call in forms], seconds))
    ]  # fmt: skip
    return Suggestion(place, "", q.shape, k.shape, causal, (measured[0], *sorted(measured[1:], key=lambda each: each.error)))


def suggest(
    program_or_q: Any, *arrays: Any, causal: bool = False, scale: float | None = None, seconds: float = 0.05
) -> list[Suggestion]:
    """Compares dense attention with forms that cost less, on the queries, keys and values that it has.

        for each in fovea.suggest(fovea.load("model.mlir"), input_ids):
            print(each)
        pathlib.Path("fits.svg").write_text(fovea.suggest(q, k, v, causal=True)[0].svg())

    Given a `Program` or the text of a module, and its inputs, which are run: for each dense attention, also such as was
    found in linalg. Or given q [B,H,N,D], k [B,G,M,D] and v [B,G,M,E] with the mask and `scale` of `dense`.

    Compared are fast multipole attention with plain means as summaries, keys quantized by k-means of these very keys,
    convolutions, and means of blocks of keys, each at several settings: the error of the output, the work, and the time
    of a call, measured for `seconds` on the CPU. All but dense attention is an approximation, and how it does on some
    inputs says nothing about quality of a model on others. Models are trained for such forms, or errors add up.
    """
    if isinstance(program_or_q, (Program, str)):
        if causal or scale is not None:
            raise ValueError("causal, scale: found them beside a program, needed none: its attention has its own")
        return _suggest_program(program_or_q, arrays, seconds)
    if len(arrays) != 2:
        raise ValueError(f"arrays: found {1 + len(arrays)}, needed q, k and v, or a program and its inputs")
    q, k, v = (np.asarray(x) for x in (program_or_q, *arrays))
    # Errors of shapes and types are those of `dense`.
    dense(q, k, v, causal=causal, scale=scale)
    return [_compare("", q, k, v, causal, 1 / math.sqrt(q.shape[3]) if scale is None else scale, seconds)]


def _suggest_program(program: Program | str, inputs: Sequence[Any], seconds: float) -> list[Suggestion]:
    constants = () if isinstance(program, str) else program.constants.values()
    text, entry = (program, None) if isinstance(program, str) else (program.text, program.kernel.name)
    probed, found = _fovea.probe_attention(text, entry)
    compared = [reason == "" for _, reason, _, _ in found]
    values: list[Any] = []
    if any(compared):
        results = compile(probed, entry=entry)(*constants, *inputs)
        values = list(results)[-3 * sum(compared) :]
    suggestions = []
    for place, reason, causal, scale in found:
        if reason:
            suggestions.append(Suggestion(place, reason))
            continue
        q, k, v = values[:3]
        suggestions.append(_compare(place, q, k, v, causal, scale, seconds))
        del values[:3]
    return suggestions


# ---- The picture ----------------------------------------------------------------


def _ticks(low: float, high: float) -> list[int]:
    """Powers of ten."""
    return list(range(math.floor(low), math.ceil(high) + 1))


def _draw(suggestion: Suggestion) -> str:
    width, height, left, top = 640, 420, 70, 50
    shown = [each for each in suggestion.candidates if each.error > 0]
    if not shown:
        raise ValueError(f"found {suggestion.title}, needed a comparison to draw")
    base = suggestion.candidates[0].milliseconds
    times = [math.log10(each.milliseconds / base) for each in shown] + [0.0]
    errors = [math.log10(each.error) for each in shown]
    across, up = _ticks(min(times), max(times)), _ticks(min(errors), max(errors))
    wide, tall = width - left - 30, height - top - 60

    def at(took: float, error: float) -> tuple[float, float]:
        x = left + wide * (took - across[0]) / max(across[-1] - across[0], 1)
        return x, top + tall * (up[-1] - error) / max(up[-1] - up[0], 1)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" font-family="sans-serif"'
        ' font-size="12">',
        f"<title>{html.escape(suggestion.title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{left}" y="20">{html.escape(suggestion.title)}</text>',
    ]
    for tick in across:
        x = at(tick, up[0])[0]
        lines.append(f'<path d="M{x:.1f} {top}V{top + tall}" stroke="#ddd"/>')
        lines.append(f'<text x="{x:.1f}" y="{top + tall + 18}" text-anchor="middle">{10.0**tick:g}</text>')
    for tick in up:
        y = at(across[0], tick)[1]
        lines.append(f'<path d="M{left} {y:.1f}H{left + wide}" stroke="#ddd"/>')
        lines.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{10.0**tick:g}</text>')
    x = at(0, 0)[0]
    lines.append(f'<path d="M{x:.1f} {top}V{top + tall}" stroke="{_COLOURS["dense"]}" stroke-dasharray="4 3"/>')
    lines.append(f'<text x="{x - 4:.1f}" y="{top - 6}" text-anchor="end">dense, exact</text>')
    for each, took, error in zip(shown, times, errors):
        x, y = at(took, error)
        told = html.escape(f"{each.form}, {each.setting}: error {each.error:.2e}, {each.milliseconds:.3f} ms")
        lines.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{_COLOURS[each.form]}"><title>{told}</title></circle>')
    x = float(left)
    for form in dict.fromkeys(each.form for each in shown):
        lines.append(f'<circle cx="{x + 5:.1f}" cy="{height - 12}" r="5" fill="{_COLOURS[form]}"/>')
        lines.append(f'<text x="{x + 14:.1f}" y="{height - 8}">{form}</text>')
        x += 14 + 8 * len(form) + 16
    lines.append(f'<text x="{left + wide}" y="{top + tall + 34}" text-anchor="end">time, over that of dense attention</text>')
    lines.append(f'<text transform="translate(16 {top + tall}) rotate(-90)">error of the output, relative</text></svg>')
    return "\n".join(lines) + "\n"
