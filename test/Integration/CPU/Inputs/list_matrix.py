# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sources with lists of rows, and their gradients, against NumPy and plain loops."""

from types import SimpleNamespace

import numpy as np
from backward_cases import IR_NAMES
from cases import BOUNDS, Checker, normal, state, tensor
from kernels import NAMES

check = Checker()

FACTORS = {
    "N": [1, 5, 13, 64, 97, 130],
    "block": [0, 1, 4, 16, 24, 64],
    "unit": [1, 3, 16, 64, 100],
    "entries": [1, 2, 7, 40],
    # The last is wider than what a block of a GPU sums.
    "width": [(16, 16), (5, 20), (64, 80), (96, 64), (320, 300)],
    "heads": [(1, 1, 1), (2, 2, 1), (2, 4, 2), (1, 6, 1)],
    "lists": ["1", "G", "H"],
    "batch": ["1", "B"],
    "listed": [False, True],
    "mask": ["", "causal", "causal, window = 9", "window = 20", "causal, prefix = 6"],
    "ranges": ["(0, rows)", "(b * 2, rows - 3)"],
    "terms": ["", "lw", "b", "lwb"],
    "lengths": [False, True],
    "hidden": [False, True],
    "other": [False, True],
    "score": [False, True],
    "sink": [False, True],
    "dtype": ["f32", "f64", "bf16", "f16"],
    "cpu": check.usable_cpus(),
    "dynamic": [False, True],
}
# Entries that name whole tiles of a GPU with warpgroups.
TILES = {
    **FACTORS,
    "N": [64, 97, 130, 200, 261],
    "M": [100, 130, 250, 330],
    "block": [0, 64, 128],
    "unit": [64, 128, 192],
    "entries": [1, 2, 5],
    "width": [(16, 16), (64, 80), (96, 64), (128, 128)],
    "listed": [False],
    "ranges": ["(0, rows)", "(b * 20, rows - 3)"],
    "terms": [""],
    "score": [False],
    "dtype": ["bf16", "f16"],
}
SCORE = """    score {{
    ^bb0(%x: {0}, %xb: index, %xh: index, %xi: index, %xj: index):
      %d = arith.subi %xj, %xi : index
      %n = arith.index_cast %d : index to i64
      %f = arith.sitofp %n : i64 to {0}
      %c = arith.constant 0.01 : {0}
      %m = arith.mulf %f, %c : {0}
      %y = arith.addf %x, %m : {0}
      attn.yield %y : {0}
    }}
"""


def choose(rng, shape, number):
    """Lists of some of `number` entries, some twice, with -1 between them."""
    lists = rng.integers(0, max(number, 1), shape).astype(np.int32)
    lists[rng.random(shape) < (0.25 if number else 2)] = -1
    return lists


class Program:
    """A function of IR that is written operand by operand."""

    def __init__(self, dynamic):
        self.arrays, self.types, self.dynamic, self.body = [], [], dynamic, ""

    def operand(self, array):
        dims = range(array.ndim - 1 if array.ndim == 4 and array.dtype != np.int32 else array.ndim)
        shape = [None if self.dynamic and i in dims and n != 1 else n for i, n in enumerate(array.shape)]
        self.arrays.append(array)
        self.types.append(tensor(shape, "i32" if array.dtype == np.int32 else IR_NAMES[array.dtype]))
        return f"%a{len(self.arrays) - 1}", self.types[-1]

    def clause(self, keyword, *arrays):
        names, types = zip(*(self.operand(array) for array in arrays))
        return f" {keyword}({', '.join(names)} : {', '.join(types)})"

    def empty(self, array, kind=None):
        """A tensor like an operand."""
        number = next(i for i, other in enumerate(self.arrays) if other is array)
        text, sizes = self.types[number], []
        for dim in (i for i, part in enumerate(text[7:].split("x")) if part == "?"):
            name = f"%d{number}_{dim}"
            if name not in self.body:
                self.body += f"  %c{number}_{dim} = arith.constant {dim} : index\n"
                self.body += f"  {name} = tensor.dim %a{number}, %c{number}_{dim} : {text}\n"
            sizes.append(name)
        if kind:
            text = text[: text.rindex("x") + 1] + kind + ">"
        name = f"%e{self.body.count('tensor.empty')}"
        self.body += f"  {name} = tensor.empty({', '.join(sizes)}) : {text}\n"
        return name, text

    def function(self, text, results):
        arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(self.types))
        kinds = ", ".join(results)
        return (
            f"func.func @f({arguments}) -> ({kinds}) {{\n{self.body}  %r:{len(results)} = {text} -> {kinds}\n"
            f"  return {', '.join(f'%r#{i}' for i in range(len(results)))} : {kinds}\n}}\n"
        )


def make_source(rng, case, M, index):
    """A source with lists: what the reference takes."""
    (B, H, G), (D, E), N, block, unit, dtype = (
        case[key] for key in ("heads", "width", "N", "block", "unit", "dtype")
    )
    listed, entries = case["listed"], case["entries"]
    pool = 1 if listed and index % 2 == 0 and not case["gradient"] else B
    k, v = normal(rng, (pool, G, M, D), dtype), normal(rng, (pool, G, M, E), dtype)
    number = -(-M // unit)
    heads = {"1": 1, "G": G, "H": H}[case["lists"]]
    blocks = -(-N // block) if block else 1
    rows = choose(rng, (B if case["batch"] == "B" else 1, heads, blocks, entries), number)
    log_weight = normal(rng, (pool if pool == B else 1, G, M), state(dtype)) if "lw" in case["terms"] else None
    bias = normal(rng, (B, H, N, M), dtype) if case["terms"].endswith("b") and not listed else None
    for term in (log_weight, bias):
        if term is not None and case["hidden"]:
            term[rng.random(term.shape) < 0.2] = -np.inf
    if case["hidden"]:
        # What no list names may hold anything.
        named = np.unique(rows[rows >= 0])
        unlisted = np.setdiff1d(np.arange(M), (named[:, None] * unit + np.arange(unit)).ravel())
        k[:, :, unlisted], v[:, :, unlisted] = np.nan, np.inf
    most = entries * unit if listed else M
    lengths = rng.integers(0, most + 1, B).astype(np.int32) if case["lengths"] else None
    options = dict(part.split(" = ") for part in case["mask"].split(", ") if "=" in part)
    ranges = case["ranges"] if block or "b *" not in case["ranges"] else "(0, rows - 3)"
    return SimpleNamespace(
        k=k, v=v, rows=rows, unit=unit, positions="listed" if listed else "stored", log_weight=log_weight,
        bias=bias, lengths=lengths, causal="causal" in case["mask"], segments=None, text=ranges,
        score=None, admit=None,
        window=int(options["window"]) if "window" in options else None,
        prefix=int(options["prefix"]) if "prefix" in options else None,
        ranges=lambda b, rows, n: eval(ranges, {"b": b, "rows": rows, "n": n}),
    )  # fmt: skip


def source_text(program, source, mask):
    text = "\n    " + program.clause("source", source.k, source.v).lstrip()
    if source.log_weight is not None:
        text += program.clause("log_weight", source.log_weight)
    if source.bias is not None:
        text += program.clause("bias", source.bias)
    if source.lengths is not None:
        text += program.clause("lengths", source.lengths)
    if source.rows is not None:
        text += program.clause("rows", source.rows) + f" unit = {source.unit}"
        text += " positions = listed" * (source.positions == "listed")
    text += f" ranges [affine_map<(b)[rows, n] -> {source.text}>]"
    return text + (f" mask <{mask}>" if mask and source.rows is not None else "")


def run(index, case, gradient=False):
    rng, case = np.random.default_rng(index), {**case, "gradient": gradient}
    (B, H, G), (D, E), N, dtype = (case[key] for key in ("heads", "width", "N", "dtype"))
    M = case.get("M") or int(rng.choice([1, 15, 47, 130]))
    q = normal(rng, (B, H, N, D), dtype)
    sources = [make_source(rng, case, M, index)]
    if case["other"]:
        k, v = normal(rng, (B, G, 20, D), dtype), normal(rng, (B, G, 20, E), dtype)
        sources.append(SimpleNamespace(
            k=k, v=v, rows=None, log_weight=None, bias=None, lengths=None, causal=False, window=None, prefix=None,
            segments=None, score=None, admit=None, ranges=None, text="(0, rows)"))  # fmt: skip
    sink = normal(rng, (1, H), dtype) if case["sink"] else None
    options = {"block": case["block"], "scale": 0.3, "sink": sink}
    options["score"] = (lambda s, b, h, i, j: s + 0.01 * (j - i)) if case["score"] else None
    out, lse = check.reference.stream(q, sources, **options, return_lse=True)
    program = Program(case["dynamic"])
    op = "stream_backward" if gradient else "stream"
    text = f"attn.{op}" + program.clause("query", q)
    text += "".join(source_text(program, source, case["mask"]) for source in sources)
    if sink is not None:
        text += program.clause("\n    sink", sink)
    text += "\n" + SCORE.format(state(dtype)) * case["score"]
    attributes = f" {{block = {case['block']} : i64, scale = 0.3 : f64}}"
    what = f"case {index} {case}"
    if gradient:
        forward = [out.astype(NAMES[dtype]), lse.astype(NAMES[state(dtype)])]
        d_out = normal(rng, out.shape, dtype)
        text += f"   {program.clause('forward', *forward)}{program.clause('gradient', d_out)}\n    outs("
        inits = [program.empty(q)] + [program.empty(s.k) for s in sources] + [program.empty(s.v) for s in sources]
        expected = check.reference.stream_backward(d_out, q, sources, *forward, **options)
        found = [expected[0], *(d[0] for d in expected[1]), *(d[1] for d in expected[1])]
        text += f"{', '.join(n for n, _ in inits)} : {', '.join(t for _, t in inits)})"
        for keyword, name, place in (("d_log_weights", "log_weight", 2), ("d_biases", "bias", 3)):
            term = getattr(sources[0], name)
            if term is not None:
                inits.append(program.empty(term))
                text += f" {keyword}({inits[-1][0]} : {inits[-1][1]})"
                found.append(expected[1][0][place])
        if sink is not None:
            inits.append(program.empty(sink))
            text += f" d_sink({inits[-1][0]} : {inits[-1][1]})"
            found.append(expected[2])
        kinds = [t for _, t in inits]
    else:
        o, kind = program.empty(q)
        kind = f"{kind[: kind[: kind.rindex('x')].rindex('x') + 1]}{E}x{dtype}>"
        program.body = program.body[: program.body.rindex(" : ")] + f" : {kind}\n"
        l_kind = kind[: kind[: kind.rindex("x")].rindex("x") + 1] + state(dtype) + ">"
        sizes = program.body[program.body.rindex("(") + 1 : program.body.rindex(")")]
        program.body += f"  %l = tensor.empty({sizes}) : {l_kind}\n"
        kinds, found = [kind, l_kind], [out, lse]
        text += f"    outs({o}, %l : {', '.join(kinds)})"
    text = program.function(text + attributes, kinds)
    for target in check.targets():
        kernel = check.library.compile(text, cpu=case["cpu"], target=target)
        results = check.call(kernel, program.arrays, what) if target == "cpu" else kernel(*program.arrays)
        check.require(len(results) == len(found), what + ": number of results")
        for number, (mine, want) in enumerate(zip(results, found)):
            floor = max(1.0, np.abs(np.where(np.isfinite(want), want, 0)).max(initial=0))
            if gradient:
                floor = max(floor, D**0.5)
            bound = (2 if gradient else 1) * BOUNDS[dtype]
            if gradient and case["score"]:
                # The reference has derivatives as quotients of differences.
                bound = max(bound, 1e-9)
            check.close(mine.astype(float) / floor, want / floor, bound,
                        f"{what}: {target} result {number}", absolute=True)


check.matrix(FACTORS, 2, run)
for factors, seed in ((FACTORS, 3), (TILES, 4)):
    check.matrix(factors, seed, lambda index, case: run(index, case, gradient=True))
check.finish()
