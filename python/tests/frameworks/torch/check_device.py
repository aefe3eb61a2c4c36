#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of fovea.torch on tensors of a GPU, with gradients, against the same on the CPU.

    python python/tests/frameworks/torch/check_device.py [--device cuda | gpu-sim] [--every N]

For machines with a GPU, where pytest need not be. `gpu-sim` rehearses: tensors stay on the CPU, and kernels for GPUs run in the emulator,
some minutes for all. The exit status is 1 if a check failed, and 2 where there is nothing to check with.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

try:
    import torch
    from torch import Tensor
except ImportError:
    print("nothing to check: there is no torch", file=sys.stderr)
    raise SystemExit(2) from None

#: Of the largest number of a result, and of a gradient, whose sums are of rounded numbers.
BOUNDS = {torch.float32: (3e-5, 6e-5), torch.bfloat16: (2e-2, 8e-2), torch.float16: (3e-3, 1.2e-2)}
#: A gradient that cancels is noise of others: it is measured by this share of the largest one, or more.
LEAST = 0.02
#: Few tokens, and more than a tile of them.
SIZES = ((torch.float32, 70), (torch.bfloat16, 70), (torch.float16, 11))
#: What an error says where kernels for GPUs lack something, and the cases of which that is known.
LACKS: dict[str, str] = {}


class Outcome(NamedTuple):
    """Of one check: `error` is the largest, in parts of its bound; `failure` and what is `lacking` are in words, or empty."""

    name: str
    error: float = 0.0
    failure: str = ""
    lacking: str = ""


def rehearse() -> None:
    """Has all calls from now on run in the emulator that do not say where. Before fovea.torch is imported."""
    from fovea import _fovea

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any, **options: Any) -> Any:
            return function(*values[:-1], target() if values[-1] is None else values[-1], **options)

        return call

    for name in dir(_fovea.tensors):
        if not name.startswith("_"):
            setattr(_fovea.tensors, name, wrap(getattr(_fovea.tensors, name)))


class _Emulated:
    """Whether calls run in the emulator."""

    is_on = False

    def __enter__(self) -> None:
        _Emulated.is_on = True

    def __exit__(self, *_: Any) -> None:
        _Emulated.is_on = False


def target() -> str | None:
    return "gpu-sim" if _Emulated.is_on else None


def _map(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_map(each, change) for each in value]
    return change(value) if isinstance(value, Tensor) else value


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, (list, tuple)):
        return [each for part in value for each in _tensors(part)]
    return [value] if isinstance(value, Tensor) else []


def _leaf(each: Tensor, device: str, layout: Callable[[Tensor], Tensor]) -> Tensor:
    """A copy on a device, in a layout of its own, that requires a gradient where `each` does."""
    return layout(each.detach().clone().to(device)).requires_grad_(each.requires_grad)


def _weigh(found: list[Tensor]) -> list[Tensor]:
    """Weights of the results that have gradients, everywhere the same."""
    numbers = torch.Generator().manual_seed(7)
    return [
        torch.randn(each.shape, generator=numbers, dtype=torch.float64).to(each.device, each.dtype)
        for each in found
        if each.requires_grad
    ]


def _compute(
    call: Callable[..., Any], given: dict[str, Any], names: tuple[str, ...], weights: list[Tensor] | None = None
) -> tuple[list[Tensor], list[Tensor]]:
    """Results, and the gradients of the arguments `names` of their sum with `weights`."""
    found = _tensors(call(**given))
    weighed = [each for each in found if each.requires_grad]
    total: Any = 0
    for each, weight in zip(weighed, _weigh(found) if weights is None else weights, strict=True):
        total = total + torch.where(each.isfinite(), each * weight, 0).double().sum()
    leaves = [each for name in names for each in _tensors(given[name])]
    gradients = list(torch.autograd.grad(total, leaves)) if leaves else []
    return found, gradients


def _compare(name: str, found: list[Tensor], expected: list[Tensor], bound: float) -> Outcome:
    worst = 0.0
    sizes = [float(each.detach().double().nan_to_num(0, 0, 0).abs().max()) if each.numel() else 0.0 for each in expected]
    least = LEAST * max(sizes, default=0.0)
    for index, (one, other, size) in enumerate(zip(found, expected, sizes, strict=True)):
        where = f"result {index}"
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return Outcome(name, failure=f"{where}: found {one.dtype} {tuple(one.shape)}, needed {other.dtype} {tuple(other.shape)}")
        one, other = one.detach().cpu(), other.detach()
        if not one.is_floating_point():
            if not torch.equal(one, other):
                return Outcome(name, failure=f"{where}: found {int((one != other).sum())} other integers")
            continue
        is_finite = other.isfinite()
        if not torch.equal(one.isfinite(), is_finite):
            return Outcome(name, failure=f"{where}: found other entries infinite or NaN")
        one, other = (each.double().where(is_finite, torch.zeros(())) for each in (one, other))
        if one.numel():
            worst = max(worst, float((one - other).abs().max()) / (max(size, least) or 1.0) / bound)
    return Outcome(name, worst, f"off by {worst:.2g} times its bound" if not worst <= 1 else "")


def _refuse(name: str, error: Exception, lacks: str) -> Outcome:
    """Of a call with an error, which is no failure where it says what the device is known to lack."""
    text = str(error).strip().partition("\n")[0]
    if lacks and lacks in text:
        return Outcome(name, lacking=text)
    return Outcome(name, failure=f"{error.__class__.__name__}: {text}")


def compare(
    name: str,
    call: Callable[..., Any],
    arguments: dict[str, Any],
    gradients: tuple[str, ...],
    device: str,
    *,
    lacks: str = "",
    layout: Callable[[Tensor], Tensor] = lambda each: each,
    run: Callable[[Callable[[], Any]], Any] = lambda compute: compute(),
) -> Iterator[Outcome]:
    """Results and gradients of `call` on the device against those on the CPU."""
    type = next(each.dtype for each in _tensors(list(arguments.values())) if each.is_floating_point())
    expected = _compute(call, arguments, gradients)
    place = "cpu" if device == "gpu-sim" else device
    moved = {key: _map(value, lambda each: _leaf(each, place, layout)) for key, value in arguments.items()}
    try:
        with _Emulated() if device == "gpu-sim" else nullcontext():
            found = run(lambda: _compute(call, moved, gradients))
    except Exception as error:
        refused = _refuse(name, error, lacks)
        yield refused
        if refused.lacking and gradients:
            # What lacks gradients has results.
            constant = {key: _map(value, Tensor.detach) for key, value in arguments.items()}
            yield from compare(name, call, constant, (), device, lacks=lacks, layout=layout, run=run)
        return
    yield _compare(name, found[0], expected[0], BOUNDS[type][0])
    if gradients:
        yield _compare(f"{name}, gradients", found[1], expected[1], BOUNDS[type][1])


Launch = Callable[[], tuple[list[Tensor], list[Tensor]]]


def record(compute: Launch) -> Launch:
    """What launches a CUDA graph of all that `compute` does."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        # Whatever happens once.
        compute()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = compute()

    def launch() -> tuple[list[Tensor], list[Tensor]]:
        graph.replay()
        return found

    return launch


def compare_recorded(
    name: str,
    call: Callable[..., Any],
    arguments: dict[str, Any],
    gradients: tuple[str, ...],
    device: str,
    *,
    lacks: str = "",
    record: Callable[[Launch], Launch] = record,
) -> Iterator[Outcome]:
    """Results and gradients of what was recorded once on the device, launched with other numbers and with those of then. The emulator has
    no graphs: there, what was recorded is computed again."""
    type = next(each.dtype for each in _tensors(list(arguments.values())) if each.is_floating_point())

    def scale(factor: float) -> dict[str, Any]:
        def change(each: Tensor) -> Tensor:
            scaled = each.detach() * factor if each.is_floating_point() else each.detach()
            return scaled.requires_grad_(each.requires_grad)

        return {key: _map(value, change) for key, value in arguments.items()}

    place = "cpu" if device == "gpu-sim" else device
    moved = {key: _map(value, lambda each: _leaf(each, place, lambda each: each)) for key, value in arguments.items()}
    with _Emulated() if device == "gpu-sim" else nullcontext():
        try:
            weights = _weigh(_tensors(call(**moved)))
            launch = record(lambda: _compute(call, moved, gradients, weights))
        except Exception as error:
            yield _refuse(name, error, lacks)
            return
    for factor in (0.5, 1.0):
        given = scale(factor)
        with torch.no_grad():
            for one, other in zip(_tensors(list(moved.values())), _tensors(list(given.values())), strict=True):
                one.copy_(other)
        with _Emulated() if device == "gpu-sim" else nullcontext():
            found = launch()
        expected = _compute(call, given, gradients)
        yield _compare(f"{name}, times {factor:g}", found[0], expected[0], BOUNDS[type][0])
        if gradients:
            yield _compare(f"{name}, times {factor:g}, gradients", found[1], expected[1], BOUNDS[type][1])


def short(type: torch.dtype) -> str:
    return str(type).removeprefix("torch.")


# ----------------------------------------------------------------------------
# Checks
# ----------------------------------------------------------------------------


def check_functions(device: str, every: int = 1) -> Iterator[Outcome]:
    from torch_cases import CASES

    for number, (name, case) in enumerate(CASES.items()):
        for type, N in SIZES if number % every == 0 else ():
            arguments = case.arguments(N, type, gradients=True)
            if case.function == "codebook_update":
                arguments.update((each, arguments[each].float()) for each in ("sums", "counts"))
            yield from compare(f"{name} {short(type)} {N}", case, arguments, case.gradients, device, lacks=LACKS.get(name, ""))


def wide_attention(type: torch.dtype, D: int = 64) -> dict[str, Any]:
    """For kernels with products of warpgroups."""
    from torch_cases import attention

    torch.manual_seed(D)
    return {name: each.requires_grad_() for name, each in attention(200, type, D=D, E=D).items()}


def check_layouts(device: str, every: int = 1) -> Iterator[Outcome]:
    """Heads behind tokens in memory, rows that are no vectors, and single rows for all."""
    import fovea.torch

    layouts = {
        "tokens first": lambda each: each.transpose(1, 2).contiguous().transpose(1, 2),
        "transposed rows": lambda each: each.mT.contiguous().mT,
        "every other row": lambda each: each.repeat_interleave(2, 2)[:, :, ::2],
    }
    def call(**given: Tensor) -> Any:
        return fovea.torch.dense(**given, causal=True, return_lse=True)

    for name, layout in layouts.items():
        for type, _ in SIZES:
            yield from compare(f"{name} {short(type)}", call, wide_attention(type), ("q", "k", "v"), device, layout=layout)


def check_streams(device: str, every: int = 1) -> Iterator[Outcome]:
    """On a stream that is busy: what makes arguments, the call, and what reads results are in its order."""
    import fovea.torch

    if device != "cuda":
        return

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        busy = torch.ones(2048, 2048, device=q.device)
        for _ in range(8 if q.is_cuda else 0):
            busy = busy @ busy / 2048
        return fovea.torch.dense(q * busy.mean().to(q.dtype), k, v, causal=True) * 2

    def run(compute: Callable[[], Any]) -> Any:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            found = compute()
        torch.cuda.current_stream().wait_stream(stream)
        return found

    for type, _ in SIZES:
        yield from compare(f"stream {short(type)}", call, wide_attention(type), ("q", "k", "v"), device, run=run)


def check_caches(device: str, every: int = 1) -> Iterator[Outcome]:
    """Tokens from caches on the device: a prompt, tokens, tokens that are refused, a fork, and a file."""
    import tempfile

    import fovea.torch

    def write(kind: str, layout: str, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        place = {"device": q.device, "target": target(), "dtype": q.dtype, "layout": layout}
        (B, G, N, D), E = k.shape, v.shape[3]
        if kind == "pages":
            cache: Any = fovea.torch.PagedCache(2 * B * N, 16, G, D, E, batch=B, **place)
        else:
            cache = fovea.torch.KVCache(B, G, D, E, capacity=N, **place)

        def own(each: Tensor, first: int, end: int) -> Tensor:
            each = each[:, :, first:end]
            return each.transpose(1, 2).contiguous() if layout == "bnhd" else each

        def step(cache: Any, first: int, end: int, lengths: Any = None) -> Tensor:
            cache.append(own(k, first, end), own(v, first, end), lengths=lengths)
            return cache.attend(own(q, first, end), query_lengths=lengths)

        found = [step(cache, 0, N - 5)]
        found += [step(cache, token, token + 1) for token in range(N - 5, N - 3)]
        fork = cache.fork()
        cache.truncate(N - 6)
        # Sequences of their own lengths.
        found += [step(cache, 3, 5, [2] + [1] * (B - 1)), step(cache, 7, 8), step(fork, N - 3, N)]
        with tempfile.TemporaryDirectory() as folder:
            cache.save(f"{folder}/cache")
            moved = type(cache).load(f"{folder}/cache", device=q.device, target=target())
        # Memory that goes away while kernels read it.
        found.append(moved.attend(own(q, 9, 10)))
        del moved
        return [*found, *(each.lengths for each in (cache, fork))]

    def summarize(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        """The same of fast multipole attention, whose groups begin within prompts and with tokens."""
        group, rank, N = 4, 2, k.shape[2]
        generator = torch.Generator().manual_seed(3)
        families: list[list[Tensor]] = [
            [
                (torch.randn(1, rank, group << level, each.shape[3], generator=generator) / (group << level)).to(each)
                for level in range(3)
            ]
            for each in (k, v)
        ]
        options = {"group": group, "heads": k.shape[1], "batch": k.shape[0], "target": target()}
        cache = fovea.torch.MultipoleCache(*families, **options)

        def step(cache: Any, token: int) -> Tensor:
            return fovea.torch.fast_multipole_decode(*(each[:, :, token : token + 1] for each in (q, k, v)), cache)

        N = min(N, cache.capacity)
        cache.append(k[:, :, : N - 10], v[:, :, : N - 10])
        found = [cache.attend(q[:, :, N - 11 : N - 10])]
        found += [step(cache, token) for token in range(N - 10, N - 5)]
        fork = cache.fork()
        with tempfile.TemporaryDirectory() as folder:
            cache.save(f"{folder}/cache")
            moved = fovea.torch.MultipoleCache.load(f"{folder}/cache", *families, **options)
        for each in (cache, fork, moved):
            found += [step(each, token) for token in range(N - 5, N)]
        return found

    for element, _ in SIZES:

        def call_multipole(**given: Tensor) -> Any:
            return summarize(*(each.detach() for each in given.values()))

        yield from compare(f"cache of fast multipole {short(element)}", call_multipole, wide_attention(element), (), device)
        for kind in ("rows", "pages"):
            for layout in ("bhnd", "bnhd"):

                def call(kind: str = kind, layout: str = layout, **given: Tensor) -> Any:
                    return write(kind, layout, *(each.detach() for each in given.values()))

                yield from compare(f"cache of {kind} {layout} {short(element)}", call, wide_attention(element), (), device)


def check_compiled(device: str, every: int = 1) -> Iterator[Outcome]:
    """Graphs of torch.compile, for any number of tokens."""
    from torch_cases import CASES

    import fovea.torch

    def window(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return fovea.torch.dense(q.relu(), k, v, causal=True, window=9).sigmoid()

    torch.compiler.reset()
    compiled = torch.compile(window, fullgraph=True, dynamic=True, backend="aot_eager")
    for type, _ in SIZES:
        yield from compare(f"compiled window {short(type)}", compiled, wide_attention(type), ("q", "k", "v"), device)
    for name in ("stream", "fast_multipole", "vq"):
        torch.compiler.reset()
        case = CASES[name]
        call = torch.compile(case.__call__, fullgraph=True, backend="aot_eager")
        yield from compare(f"compiled {name}", call, case.arguments(gradients=True), case.gradients, device)


#: What no graph can hold, of the cases: what the host reads, or has.
NOT_IN_GRAPHS = {"varlen", "commitment_loss", "tree_fetch", "tree_update"}


def check_graphs(device: str, every: int = 1) -> Iterator[Outcome]:
    """CUDA graphs of calls with their gradients."""
    from torch_cases import CASES

    options: dict[str, Any] = {"record": lambda compute: compute} if device != "cuda" else {}
    for number, (name, case) in enumerate(CASES.items()):
        if number % every == 0:
            arguments, lacks = case.arguments(gradients=True), "cannot hold" if name in NOT_IN_GRAPHS else ""
            if case.function == "codebook_update":
                arguments.update((each, arguments[each].float()) for each in ("sums", "counts"))
            yield from compare_recorded(f"graph of {name}", case, arguments, case.gradients, device, lacks=lacks, **options)
    for number, (type, _) in enumerate(SIZES):
        if number % every:
            continue
        # One token is where graphs are worth most.
        wide = wide_attention(type)
        single = {name: (each[:, :, -1:] if name == "q" else each).detach() for name, each in wide.items()}
        for name, given, leaves in (("tokens", wide, ("q", "k", "v")), ("one token", single, ())):
            yield from compare_recorded(f"graph of {name} {short(type)}", CASES["dense-causal"], given, leaves, device, **options)


CHECKS = {
    "functions": check_functions,
    "layouts": check_layouts,
    "streams": check_streams,
    "caches": check_caches,
    "compiled": check_compiled,
    "graphs": check_graphs,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "gpu-sim"], default="cuda", help="default: cuda")
    parser.add_argument("--checks", nargs="+", choices=CHECKS, default=list(CHECKS), help="only these; default: all")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one function of N; default: 1")
    options = parser.parse_args()
    if options.every < 1:
        parser.error(f"--every: found {options.every}, needed a positive number")
    if options.device == "cuda" and not torch.cuda.is_available():
        print("nothing to check: torch finds no CUDA device", file=sys.stderr)
        raise SystemExit(2)
    if options.device == "gpu-sim":
        rehearse()
    outcomes = []
    for check in options.checks:
        for each in CHECKS[check](options.device, options.every):
            outcomes.append(each)
            state = f"FAILED: {each.failure}" if each.failure else f"refused: {each.lacking}" if each.lacking else f"{each.error:.2g}"
            print(f"{each.name}: {state}", flush=True)
    failed, refused = (sum(bool(getattr(each, name)) for each in outcomes) for name in ("failure", "lacking"))
    print(f"{len(outcomes)} checks, {failed} failed, {refused} refused")
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
