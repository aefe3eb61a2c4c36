# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the numeric tests share: IR for a case, inputs, plain formulas, bounds."""

import argparse
import importlib.util
import itertools
import math
import os
import random
import sys

import numpy as np
from kernels import NAMES, Failure, open_library

# Bounds of shared accuracy: max|out - ref| / max|ref| on unit-normal inputs.
BOUNDS = {"f32": 5e-6, "f64": 1e-13, "bf16": 1e-2, "f16": 2e-3}
CPUS = ["native", "x86-64", "x86-64-v3", "x86-64-v4"]


def load_reference(source):
    path = os.path.join(source, "python", "fovea", "reference", "__init__.py")
    spec = importlib.util.spec_from_file_location("fovea_reference", path)
    module = sys.modules["fovea_reference"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Checker:
    """Counts checks, prints those that fail, and exits accordingly."""

    def __init__(self):
        parser = argparse.ArgumentParser()
        parser.add_argument("library", help="libfovea_c.so, or 'package'")
        parser.add_argument("source")
        # For canaries: every bound is multiplied by this, and the first check that fails ends the run.
        parser.add_argument("--bound-factor", type=float, default=1.0)
        parser.add_argument("--only", type=int)
        parser.add_argument("--target", default="cpu")
        # The GPU that kernels of the emulator are for.
        parser.add_argument("--chip", default="sm_80")
        # For targets on which kernels are slow: one case of so many; FOVEA_EVERY takes one of so many of these.
        parser.add_argument("--every", type=int, default=1)
        # Other matrices than those of the suite.
        parser.add_argument("--seed", type=int, default=0)
        arguments = parser.parse_args()
        self.chip = arguments.chip
        os.environ["FOVEA_SIMT"] = ",".join(filter(None, (os.environ.get("FOVEA_SIMT"), f"chip={self.chip}")))
        self.library = open_library(arguments.library, arguments.target)
        self.reference = load_reference(arguments.source)
        self.factor = arguments.bound_factor
        self.only, self.seed = arguments.only, arguments.seed
        self.is_canary = self.factor != 1
        self.every = 1 if self.is_canary else arguments.every * int(os.environ.get("FOVEA_EVERY", 1))
        # That of lists with fewer cases than a matrix; in CI 7, which divides no number of kinds.
        self.part = 1 if self.is_canary else max(1, int(os.environ.get("FOVEA_EVERY", 1)) // 11)
        self.count = self.failures = 0
        self.worst = {}

    def wants(self, index, place=None):
        """Whether to run a case of a matrix. Samples are taken by `place`, that among the
        cases which the target has, so that they are never empty."""
        place = index if place is None else place
        return index == self.only if self.only is not None else place % self.every == 0

    def matrix(self, factors, seed, run):
        """Runs a matrix of cases, of the types that the target has; one that raises
        is a failed check."""
        cases = enumerate(pairwise(factors, seed + self.seed))
        cases = [(index, case) for index, case in cases if case.get("dtype", "f32") in self.types()]
        for place, (index, case) in enumerate(cases):
            if self.wants(index, place):
                try:
                    run(index, case)
                except Exception as failure:
                    self.require(False, f"case {index} {case}: {type(failure).__name__} {failure}")

    def call(self, kernel, arguments, what, threads=(1, 3)):
        """What a kernel computes: the same bits with so many threads each time."""
        results = []
        for count in threads:
            self.library.set_num_threads(count)
            results.append(kernel(*arguments))
            same = all(a.tobytes() == b.tobytes() for a, b in zip(results[0], results[-1]))
            self.require(same, f"{what}: differs with {count} threads")
        self.library.set_num_threads(0)
        return results[0]

    def require(self, holds, what):
        self.count += 1
        if not holds:
            self.failures += 1
            print(f"FAILED: {what}")
            if self.is_canary:
                self.finish()

    def close(self, found, expected, bound, what, absolute=False):
        """Same NaNs and infinities, and the rest within the bound."""
        found, expected = found.astype(np.float64), expected.astype(np.float64)
        if found.shape != expected.shape:
            return self.require(False, f"{what}: shape {found.shape}, not {expected.shape}")
        finite = np.isfinite(expected)
        same = np.where(finite, np.isfinite(found), False)
        with np.errstate(invalid="ignore"):
            same |= (found == expected) | (np.isnan(found) & np.isnan(expected))
        if not same.all():
            return self.require(False, f"{what}: {np.sum(~same)} of {same.size} NaN or infinite in one")
        error = np.abs(found[finite] - expected[finite]).max(initial=0)
        if not absolute and error:
            error /= np.abs(expected[finite]).max(initial=0) or 1e-300
        self.worst[bound] = max(self.worst.get(bound, 0), error)
        self.require(error <= bound * self.factor, f"{what}: error {error:.3g}, bound {bound:.3g}")

    def usable_cpus(self):
        """The CPUs whose code this machine can run."""
        if self.library.target != "cpu":
            return ["native"]
        usable = []
        for cpu in CPUS:
            try:
                self.library.compile("func.func @f(%a: tensor<1xf32>) -> tensor<1xf32> "
                                     "{ return %a : tensor<1xf32> }", cpu=cpu)
                usable.append(cpu)
            except Failure as failure:
                if "cannot run code for CPU" not in str(failure):
                    raise
        return usable

    def types(self):
        """The element types of the target."""
        return [t for t in ("f32", "f64", "bf16", "f16") if t != "f64" or self.library.target == "cpu"]

    def targets(self):
        """What a case is run on: the target, and with the CPU the reference."""
        target = self.library.target
        return (target, "reference") if target == "cpu" else (target,)

    def finish(self):
        for bound, error in sorted(self.worst.items()):
            print(f"largest error under the bound {bound:.3g}: {error:.3g}")
        print(f"{self.count} checks, {self.failures} failed")
        raise SystemExit(1 if self.failures or not self.count else 0)


def pairwise(factors, seed):
    """Rows such that every pair of values of two factors is in one of them."""
    rng = random.Random(seed)
    names = list(factors)
    left = {
        (a, x, b, y)
        for a, b in itertools.combinations(names, 2)
        for x in range(len(factors[a]))
        for y in range(len(factors[b]))
    }
    rows = []
    while left:
        best, gain = None, -1
        # Each candidate starts from a pair that is still missing.
        for a, x, b, y in rng.sample(sorted(left), min(len(left), 24)):
            row = {name: rng.randrange(len(values)) for name, values in factors.items()}
            row[a], row[b] = x, y
            covered = sum((c, row[c], d, row[d]) in left for c, d in itertools.combinations(names, 2))
            if covered > gain:
                best, gain = row, covered
        left -= {(a, best[a], b, best[b]) for a, b in itertools.combinations(names, 2)}
        rows.append({name: factors[name][index] for name, index in best.items()})
    return rows


def tensor(shape, dtype):
    return "tensor<" + "".join(f"{'?' if n is None else n}x" for n in shape) + dtype + ">"


def mask_text(causal, window):
    if not causal and not window:
        return ""
    parts = (["causal"] if causal else []) + ([f"window = {window}"] if window else [])
    return f"mask = #attn.mask<{', '.join(parts)}>"


def state(dtype):
    return "f64" if dtype == "f64" else "f32"


def dense_text(dtype, B, H, G, N, M, D, E, *, causal=False, window=None, log_weight=None,
               bias=None, sink=None, lse=False, scale=None):
    """attn.dense; extents may be None for dynamic, `log_weight`, `bias` and `sink`
    are (shape, type)."""
    types = [tensor(s, dtype) for s in ((B, H, N, D), (B, G, M, D), (B, G, M, E))]
    names = ["%q", "%k", "%v"]
    text = f"attn.dense ins(%q, %k, %v : {', '.join(types)})\n"
    for name, key, term in (("%w", "log_weight", log_weight), ("%b", "bias", bias), ("%s", "sink", sink)):
        if term:
            names.append(name)
            types.append(tensor(*term))
            text += f"    {key}({name} : {types[-1]})\n"
    results = [tensor((B, H, N, E), dtype)]
    if lse:
        results.append(tensor((B, H, N), state(dtype)))
    dynamic = [f"%d{i}" for i, n in enumerate((B, H, N)) if n is None]
    body = "".join(
        f"  %c{i} = arith.constant {i} : index\n  %d{i} = tensor.dim %q, %c{i} : {types[0]}\n"
        for i, n in enumerate((B, H, N)) if n is None
    )
    for i, result in enumerate(results):
        body += f"  %o{i} = tensor.empty({', '.join(dynamic)}) : {result}\n"
    attributes = [mask_text(causal, window)] if causal or window else []
    if scale is not None:
        attributes.append(f"scale = {scale!r} : f64")
    outs = ", ".join(f"%o{i}" for i in range(len(results)))
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, types))
    return (
        f"func.func @f({arguments}) -> ({', '.join(results)}) {{\n{body}"
        f"  %r:{len(results)} = {text}    outs({outs} : {', '.join(results)}) "
        f"{{{', '.join(attributes)}}} -> {', '.join(results)}\n"
        f"  return {', '.join(f'%r#{i}' for i in range(len(results)))} : {', '.join(results)}\n}}\n"
    )


def multipole_text(dtype, B, H, G, N, D, group, rank, levels, *, causal=False, lse=False):
    """attn.fast_multipole of q, k, v, and of weights shared by all heads: those
    of the keys, level 1 first, and then those of the values."""
    data = [tensor(s, dtype) for s in ((B, H, N, D), (B, G, N, D), (B, G, N, D))]
    weights = [tensor((1, rank, group << level, D), dtype) for level in range(levels)]
    results = [data[0]] + [tensor((B, H, N), state(dtype))] * lse
    arguments = [f"%{name}: {t}" for name, t in zip("qkv", data)]
    text = f"  %r:{len(results)} = attn.fast_multipole ins(%q, %k, %v : {', '.join(data)})\n"
    for side in ("key", "value"):
        names = [f"%{side}{level}" for level in range(levels)]
        arguments += [f"{n}: {t}" for n, t in zip(names, weights)]
        text += f"    {side}_weights({', '.join(names)} : {', '.join(weights)})\n"
    body = "".join(f"  %o{i} = tensor.empty() : {t}\n" for i, t in enumerate(results))
    kinds = ", ".join(results)
    return (
        f"func.func @f({', '.join(arguments)}) -> ({kinds}) {{\n{body}{text}"
        f"    outs({', '.join(f'%o{i}' for i in range(len(results)))} : {kinds})"
        f" {{group = {group} : i64{', causal' * causal}}} -> {kinds}\n"
        f"  return {', '.join(f'%r#{i}' for i in range(len(results)))} : {kinds}\n}}\n"
    )


def dense_factors(check, **more):
    """Of attn.dense and its gradient."""
    return {
        "N": [1, 13, 63, 64, 65, 97, 192],
        "M": ["N", "N", "fewer", "more", 1, 300],
        "B": [1, 2],
        "heads": [(1, 1), (3, 3), (4, 2), (4, 1)],
        "mask": [(False, None), (True, None), (False, 7), (True, 20), (True, 1), (False, 100)],
        "dtype": ["f32", "f64", "bf16", "f16"],
        "cpu": check.usable_cpus(),
        "lse": [False, True],
        "log_weight": [None, "111", "B11", "1G1", "11M", "BGM"],
        "bias": [None, "1111", "111M", "11N1", "11NM", "B1NM", "1HNM", "BHNM", "BHN1", "BH1M"],
        "sink": [None, "1H", "BH", "11"],
        "term_type": ["state", "data"],
        "hidden": [False, True],
        "scale": [None, 0.3],
        **more,
    }


def dense_inputs(rng, case):
    """(q, k, v), the terms by name, and the options, of a case of `dense_factors`."""
    (H, G), B, N, dtype = (case[key] for key in ("heads", "B", "N", "dtype"))
    M = {"N": N, "fewer": max(N * 2 // 3, 1), "more": N + 37}.get(case["M"], case["M"])
    shapes = (B, H, N, case["D"]), (B, G, M, case["D"]), (B, G, M, case["E"])
    tensors = [normal(rng, shape, dtype) for shape in shapes]
    extents = {"1": 1, "B": B, "H": H, "G": G, "N": N, "M": M}
    term_type = dtype if case["term_type"] == "data" else state(dtype)
    terms = {}
    for name in ("log_weight", "bias"):
        if case[name]:
            terms[name] = normal(rng, [extents[c] for c in case[name]], term_type)
            if case["hidden"]:
                terms[name][rng.random(terms[name].shape) < 0.2] = -np.inf
    if case["sink"]:
        # About as heavy as all keys.
        terms["sink"] = normal(rng, [extents[c] for c in case["sink"]], term_type) + np.log(M).astype(NAMES[term_type])
        if case["hidden"]:
            terms["sink"][:, 0] = -np.inf
    causal, window = case["mask"]
    return tensors, terms, dict(causal=causal, window=window, scale=case["scale"])


def normal(rng, shape, dtype, factor=1.0):
    return (rng.standard_normal(shape) * factor).astype(NAMES[dtype])


def softmax_of(score):
    """The weights of scores, and the logarithms of their sums; rows of minus infinity have none."""
    top = score.max(axis=-1, keepdims=True)
    p = np.exp(score - np.where(top == -np.inf, 0, top))
    total = p.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (np.where(total == 0, 0, top) + np.log(total))[..., 0]
    return p / np.where(total == 0, 1, total), lse


def plain(q, k, v, *, scale=None, causal=False, window=None, log_weight=None, bias=None,
          sink=None, type=np.float32):
    """Dense attention as one writes it down, every operation in `type`."""
    B, H, N, D = q.shape
    G, M = k.shape[1:3]
    q, k, v = (x.astype(type) for x in (q, k, v))
    scale = type(1 / math.sqrt(D) if scale is None else scale)
    k, v = (np.repeat(x, H // G, axis=1) for x in (k, v))
    s = (q @ k.swapaxes(-1, -2)) * scale
    if log_weight is not None:
        w = np.broadcast_to(log_weight.astype(type), (B, G, M))
        s = s + np.repeat(w, H // G, axis=1)[:, :, None]
    if bias is not None:
        s = s + bias.astype(type)
    distance = np.arange(N)[:, None] + (M - N) - np.arange(M)
    if causal:
        s = np.where(distance < 0, -np.inf, s)
    if window:
        s = np.where(np.abs(distance) < window, s, -np.inf)
    extra = np.full((B, H), -np.inf) if sink is None else np.broadcast_to(sink, (B, H))
    extra = extra.astype(type)[:, :, None, None]
    top = np.maximum(s.max(axis=-1, keepdims=True, initial=-np.inf), extra)
    p = np.exp(s - np.where(top == -np.inf, 0, top).astype(type))
    total = p.sum(axis=-1, keepdims=True) + np.exp(extra - np.where(top == -np.inf, 0, top).astype(type))
    return (p @ v) / np.where(total == 0, 1, total)
