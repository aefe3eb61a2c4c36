# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of every family as workloads: each function makes one of the fields of
a row. They are checked where their row says at which size (`check`)."""

import math
import re

import numpy as np

from .ir import Kernel, Text, operand, tensor


class Operation:
    """A kernel and a function that makes its arguments."""

    op, type = None, "f32"

    def __init__(self, kernel, arrays=None, *, moved_bytes=None, part=None, gradient=False):
        self._kernel, self._arrays = kernel, arrays or _all_normal(kernel)
        self._part, self._gradient = part, gradient
        self._moved_bytes = moved_bytes

    def shapes(self):
        return self._kernel.ir()

    def inputs(self, seed=1):
        """The arguments; None for any numbers, where a part alone is measured."""
        if self._part:
            return None
        numbers = _Numbers(seed)
        arrays = self._arrays(numbers)
        if self._gradient:
            arrays += [numbers.normal(*shape) for _, shape, _ in self._kernel.results()]
        return [np.asarray(array, order="C") for array in arrays]

    def ir(self, optimize):
        """The text of a module; `optimize` runs fovea-opt."""
        text = self._kernel.ir()
        if self._gradient:
            return optimize(text, "--attn-differentiate=name=gradient",
                            "--symbol-privatize=exclude=gradient", "--symbol-dce")  # fmt: skip
        return isolate(optimize, text, self._part) if self._part else text

    def result_bytes(self):
        """Unknown of a part."""
        return 0 if self._part else self._kernel.result_bytes()

    def summary_bytes(self):
        return 0

    def moved_bytes(self):
        """What it has to read and write, unless that is arguments and results."""
        return self._moved_bytes


class _Numbers:
    def __init__(self, seed):
        self._generator = np.random.default_rng(seed)
        self.integers, self.random = self._generator.integers, self._generator.random

    def normal(self, *shape, element="f32"):
        array = self._generator.standard_normal(shape, dtype=np.float32)
        return array.astype(np.float64) if element == "f64" else array


def _all_normal(kernel):
    """Standard normal numbers; log-sum-exps of their size, and weights that keep the
    size of what they sum."""
    def make(numbers, name, shape):
        array = numbers.normal(*shape)
        if name == "lse":
            array += np.float32(math.log(shape[-1]) + 1)
        elif name.startswith(("kw", "vw")):
            array *= np.float32(shape[2] ** -0.5)
        return array

    return lambda numbers: [make(numbers, name, shape) for name, shape, _ in kernel.arguments()]


def isolate(optimize, text, part):
    """A function of the first `part` that `text` expands to, or of all those that add
    to the same destination one after the other. On buffers, so that nothing else is
    measured."""
    lines = optimize(text, "--attn-expand-patterns", "--canonicalize", "--mlir-print-op-generic")
    maps = "".join(line + "\n" for line in lines.splitlines() if line.startswith("#"))
    pattern = rf'(%\d+):(\d+) = "attn\.{part}"\(([^)]*)\) (<{{.*?}}>|) ?: \((.*?)\) ->'
    body, allocations, arguments, buffers = "", [], {}, {}
    for number, (name, count, operands, attributes, types) in enumerate(re.findall(pattern, lines)):
        operands, types = operands.split(", "), re.findall(r"tensor<[^>]*>", types)
        # The next level adds to what this one has added to.
        if number and (part == "stream_backward" or operands[3] not in buffers):
            break
        names = []
        for value, kind in zip(operands, types):
            if value in buffers:
                names.append(buffers[value])
            elif len(names) < len(operands) - int(count):
                names.append(arguments.setdefault(value, (f"%a{len(arguments)}", kind))[0])
            else:
                # Destinations have buffers of their own.
                names.append(f"%b{len(allocations)}")
                allocations.append((names[-1], kind))
        buffers.update({f"{name}#{i}": names[i - int(count)] for i in range(int(count))})
        body += f'  "attn.{part}"({", ".join(names)}) {attributes} : ({", ".join(types)}) -> ()\n'
    inputs = ", ".join(f"{name}: {kind}" for name, kind in arguments.values())
    # Returned, since levels are not grouped when one's sums are freed before
    # the next.
    names, types = (", ".join(column) for column in zip(*allocations))
    body = "".join(f"  {n} = memref.alloc() : {t}\n" for n, t in allocations) + body
    text = f"func.func @run({inputs}) -> ({types}) {{\n{body}  return {names} : {types}\n}}\n"
    return maps + text.replace("tensor<", "memref<")


# -- Dense and fast multipole attention: gradients ---------------------------------


def dense_backward(n, width=64, heads=1, causal=False, bias=False):
    rows = (1, heads, n)
    q = (*rows, width)
    term = [operand("b", *rows, n)] if bias else []
    return Operation(Kernel(
        "dense_backward",
        [("ins", [operand(name, *q) for name in "qkv"]), ("bias", term),
         ("forward", [operand("out", *q), operand("lse", *rows)]), ("gradient", [operand("adjoint", *q)])],
        [("outs", [operand(f"d{name}", *q) for name in "qkv"])] + [("d_bias", [operand("db", *rows, n)])] * bias,
        "mask = #attn.mask<causal>" if causal else "",
    ))  # fmt: skip


def fast_multipole_backward(n, heads=1, group=64, rank=4, width=64, causal=True, part=None):
    levels = 0
    while n > group << (levels + 1):
        levels += 1
    rows = (1, heads, n)
    q = (*rows, width)

    def weights(prefix):
        return [operand(f"{prefix}{level}", 1, rank, group << level, width) for level in range(levels)]

    kernel = Kernel(
        "fast_multipole_backward",
        [("ins", [operand(name, *q) for name in "qkv"]), ("key_weights", weights("kw")),
         ("value_weights", weights("vw")), ("forward", [operand("out", *q), operand("lse", *rows)]),
         ("gradient", [operand("adjoint", *q)])],
        [("outs", [operand(f"d{name}", *q) for name in "qkv"]), ("d_key_weights", weights("dkw")),
         ("d_value_weights", weights("dvw"))],
        f"group = {group} : i64" + ", causal" * causal,
    )  # fmt: skip
    return Operation(kernel, part=part)


# -- Quantized attention -------------------------------------------------------------


def _vq_operands(n, heads, width, value_width, codes, block, bias):
    rows = (1, heads, n)
    found = {
        "q": operand("q", *rows, width), "k": operand("k", *rows, width),
        "z": operand("z", *rows, element="i32"), "v": operand("v", *rows, value_width),
        "c": operand("c", heads, codes, width),
    }  # fmt: skip
    return found, [operand("b", *rows, 2 * block)] if bias else []


def _vq_arrays(numbers, operands, codes):
    def make(name, shape, element):
        if element == "i32":
            return numbers.integers(0, codes, shape, np.int32)
        return numbers.normal(*shape) / np.float32(shape[-1] ** 0.5 if name == "q" else 1)

    return [make(*o) for o in operands]


def vq(n, heads=1, width=64, value_width=64, codes=512, block=512, bias=False, reduction="auto",
       quantizes=False, gradient=False):  # fmt: skip
    """With `quantizes`, from keys instead of codes."""
    o, term = _vq_operands(n, heads, width, value_width, codes, block, bias)
    attributes = f"block = {block} : i64, causal, reduction = #attn.reduction<{reduction}>"
    out = operand("o", 1, heads, n, value_width)
    kernel = Kernel("vq", [("ins", [o[name] for name in "qzvc"]), ("bias", term)], [("outs", [out])], attributes)
    if quantizes:
        codes_of = Kernel("quantize", [("ins", [o["k"], o["c"]])], [("outs", [("i", *o["z"][1:])])])
        body = codes_of.body("z") + kernel.body()
        kernel = Text(body, [o[name] for name in "qkvc"] + term, [("result", *out[1:])])
    return Operation(kernel, lambda numbers: _vq_arrays(numbers, kernel.arguments(), codes), gradient=gradient)


def vq_backward(n, heads=1, width=64, value_width=64, codes=512, block=512, bias=False):
    """Instead of what a forward pass leaves, numbers of the same size."""
    o, term = _vq_operands(n, heads, width, value_width, codes, block, bias)
    rows = (1, heads, n)
    out = (*rows, value_width)
    ins = [o[name] for name in "qzvc"]
    kernel = Kernel(
        "vq_backward",
        [("ins", ins), ("bias", term), ("forward", [operand("out", *out), operand("lse", *rows)]),
         ("gradient", [operand("adjoint", *out)])],
        [("outs", [operand("dq", *rows, width), operand("dk", *rows, width), operand("dv", *out)])]
        + [("d_bias", [operand("db", *rows, 2 * block)])] * bias,
        f"block = {block} : i64, causal",
    )  # fmt: skip

    def arrays(numbers):
        adjoint = numbers.normal(*out)
        normaliser = np.broadcast_to(np.log(np.arange(1.0, n + 1)) + 0.5, rows).astype(np.float32)
        return _vq_arrays(numbers, ins + term, codes) + [adjoint / 16, normaliser, adjoint]

    return Operation(kernel, arrays)


def vq_decode(context, heads=1, width=64, value_width=64, codes=512, block=512):
    """One token on a state in place."""
    token = [operand("q", 1, heads, 1, width), operand("z", 1, heads, 1, element="i32"),
             operand("v", 1, heads, 1, value_width), operand("c", heads, codes, width)]  # fmt: skip
    state = [operand("m0", 1, heads, codes, value_width), operand("m1", 1, heads, codes, element="i32"),
             operand("m2", 1, heads, 2 * block, element="i32"), operand("m3", 1, heads, 2 * block, value_width),
             operand("m4", element="i64")]  # fmt: skip
    kinds = [tensor(s, e) for _, s, e in state]
    buffers = [kind.replace("tensor", "memref") for kind in kinds]
    v = tensor(token[2][1])
    body = "".join(
        f"  %s{i} = bufferization.to_tensor %m{i} restrict writable : {m} to {t}\n"
        for i, (t, m) in enumerate(zip(kinds, buffers))
    )
    ins = ", ".join(tensor(s, e) for _, s, e in token)
    body += (
        f"  %o = tensor.empty() : {v}\n  %out, %n:5 = attn.vq_decode ins(%q, %z, %v, %c : {ins}) outs(%o : {v})"
        f" state(%s0, %s1, %s2, %s3, %s4 : {', '.join(kinds)}) {{block = {block} : i64}} -> {', '.join([v] + kinds)}\n"
    )
    body += "".join(
        f"  bufferization.materialize_in_destination %n#{i} in restrict writable %m{i} : ({t}, {m}) -> ()\n"
        for i, (t, m) in enumerate(zip(kinds, buffers))
    )

    def arrays(numbers):
        count = np.full(state[1][1], max(context // codes, 1), np.int32)
        return _vq_arrays(numbers, token, codes) + [
            numbers.normal(*state[0][1]), count, numbers.integers(0, codes, state[2][1], np.int32),
            numbers.normal(*state[3][1]), np.array(context, np.int64),
        ]  # fmt: skip

    kernel = Text(body, token + state, [("out", *token[2][1:])], buffers_from=len(token))
    floats = codes * (width + value_width) + 2 * block * value_width
    # Codebook, means, and values and codes of the blocks that are kept.
    return Operation(kernel, arrays, moved_bytes=4 * heads * (floats + 2 * block))


# -- Sums of convolutions --------------------------------------------------------------


def _bases(n, bases):
    return operand("b", 1, 1, bases, n), operand("m", 1, 1, bases, element="i32")


def _bases_arrays(numbers, n, bases):
    sizes = np.array([[[n - r * n // bases for r in range(bases)]]], np.int32)
    return [-np.abs(numbers.normal(1, 1, bases, n)), sizes]


def conv_apply(n, bases, width=64, algorithm="auto", block=None):
    value = operand("v", 1, 1, n, width)
    kernel = Kernel(
        "conv_apply", [("ins", [*_bases(n, bases), value])],
        [("outs", [operand("o", *value[1]), operand("c", 1, 1, element="i32")])],
        f"algorithm = #attn.conv_algorithm<{algorithm}>" + (f", block = {block} : i64" if block else ""),
    )  # fmt: skip
    return Operation(kernel, lambda numbers: _bases_arrays(numbers, n, bases) + [numbers.normal(*value[1])])


def conv_apply_backward(n, bases, width=64):
    """Times do not depend on the numbers, but for rows that are computed again."""
    b, m = _bases(n, bases)
    rows = (1, 1, n, width)
    kernel = Kernel(
        "conv_apply_backward",
        [("ins", [b, m, operand("v", *rows)]), ("forward", [operand("out", *rows)]),
         ("gradient", [operand("adjoint", *rows)])],
        [("outs", [operand("db", *b[1]), operand("dv", *rows)])],
    )  # fmt: skip
    return Operation(
        kernel, lambda numbers: _bases_arrays(numbers, n, bases) + [numbers.normal(*rows) for _ in range(3)]
    )


def conv_backward(n, bases, width=64):
    q = (1, 1, n, width)
    return Operation(Kernel(
        "conv_backward",
        [("ins", [operand(name, *q) for name in "qkv"]), ("forward", [operand("out", *q)]),
         ("gradient", [operand("adjoint", *q)])],
        [("outs", [operand(f"d{name}", *q) for name in "qkv"])],
        f"num_basis = {bases} : i64, window = 16 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64",
    ))  # fmt: skip


def _scores_of_convolutions(numbers, n, bases, width):
    """Queries and keys whose scores are so many convolutions."""
    at = np.arange(n)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)

    def turned(vectors):
        x, y = vectors[:, 0::2], vectors[:, 1::2]
        out = np.empty((n, width), np.float32)
        out[:, 0::2] = x * np.cos(at) - y * np.sin(at)
        out[:, 1::2] = x * np.sin(at) + y * np.cos(at)
        return out.reshape(1, 1, n, width)

    keys = numbers.normal(bases, width)[np.arange(n) * bases // n]
    return [turned(np.repeat(numbers.normal(1, width), n, 0)), turned(keys)]


def conv_recover(n, bases, width=64, window=16):
    b, m = _bases(n, bases)
    kernel = Kernel(
        "conv_recover", [("ins", [operand(name, 1, 1, n, width) for name in "qk"])],
        [("outs", [b, m, operand("n", 1, 1, element="i32")])],
        f"window = {window} : i64, delta = 1.0 : f64, epsilon = 0.0 : f64",
    )  # fmt: skip
    return Operation(kernel, lambda numbers: _scores_of_convolutions(numbers, n, bases, width))


def conv(n, bases, width=64, window=16):
    q = (1, 1, n, width)
    kernel = Kernel(
        "conv", [("ins", [operand(name, *q) for name in "qkv"])],
        [("outs", [operand("o", *q), operand("n", 1, 1, element="i32"), operand("c", 1, 1, element="i32")])],
        f"num_basis = {bases} : i64, window = {window} : i64, delta = 1.0 : f64, epsilon = 0.0 : f64",
    )  # fmt: skip
    return Operation(
        kernel, lambda numbers: _scores_of_convolutions(numbers, n, bases, width) + [numbers.normal(*q)]
    )


# -- Low-rank attention ----------------------------------------------------------------


def _mask_parts(numbers, mask, rows):
    window = min(4096, rows)
    at = np.arange(rows)
    if mask == "row_interval":
        parts = [np.maximum(at - window, 0), at]
    elif mask == "row_change":
        # A window: one column enters, one leaves.
        first, later = np.arange(window), np.arange(window, rows)
        columns = np.concatenate([first, np.stack([later, later - window], 1).ravel()])
        parts = [np.concatenate([first + 1, window + 2 * (later - window + 1)]), columns]
    elif mask in ("distinct_rows", "distinct_columns"):
        return [(at // -(-rows // 8)).astype(np.int32).reshape(1, 1, -1), numbers.random((1, 1, 8, rows)) < 0.5]
    else:
        parts = []
    return [part.astype(np.int32).reshape(1, 1, -1) for part in parts]


def low_rank(n, rank=64, width=64, heads=1, type="f32", mask="causal", backward=False):
    shapes = [(1, heads, n, extent) for extent in (rank, rank, width)]
    elements = {np.dtype(np.int32): "i32", np.dtype(bool): "i1"}
    parts = [operand(f"m{i}", *part.shape, element=elements[part.dtype])
             for i, part in enumerate(_mask_parts(_Numbers(1), mask, n))]  # fmt: skip
    ins = [operand(name, *shape, element=type) for name, shape in zip(("u1", "u2", "v"), shapes)]
    inputs = [("ins", ins), ("mask", parts)]
    outs = [operand("o", *shapes[2], element=type)]
    if backward:
        inputs += [("forward", [operand("out", *shapes[2], element=type)]),
                   ("gradient", [operand("adjoint", *shapes[2], element=type)])]  # fmt: skip
        outs = [operand(f"d{name}", *shape, element=element) for name, shape, element in ins]
    kernel = Kernel("low_rank" + "_backward" * backward, inputs, [("outs", outs)], f"mask = #attn.row_mask<{mask}>")

    def arrays(numbers):
        dtype = np.float64 if type == "f64" else np.float32
        found = [numbers.random(shape).astype(dtype) for shape in shapes] + _mask_parts(numbers, mask, n)
        return found + [numbers.normal(*shapes[2], element=type) for _ in range(2 * backward)]

    return Operation(kernel, arrays)


def low_rank_backward(**fields):
    return low_rank(**fields, backward=True)


def rope(n, heads=8, width=64):
    x = operand("x", 1, heads, n, width)
    kernel = Kernel("rope", [("ins", [x, operand("p", 1, 1, n, element="i32")])], [("outs", [("o", *x[1:])])])
    positions = np.arange(n, dtype=np.int32).reshape(1, 1, -1)
    return Operation(kernel, lambda numbers: [numbers.normal(*x[1]), positions])


def polynomial_features(n, width=32, degree=2, backward=False):
    count = math.comb(width + degree, degree)
    x, f = operand("x", 1, 1, n, width), operand("f", 1, 1, n, count)
    inputs, out = [("ins", [x])], f
    if backward:
        inputs, out = inputs + [("gradient", [f])], operand("dx", *x[1])
    return Operation(Kernel("polynomial_features" + "_backward" * backward, inputs, [("outs", [out])],
                            f"degree = {degree} : i64, scale = 1.0 : f64"))  # fmt: skip


def polynomial_features_backward(**fields):
    return polynomial_features(**fields, backward=True)


# -- Compressed attention --------------------------------------------------------------


class _Layer:
    """A layer over `n` compressed tokens: segments of `ratio` tokens, `split` of which
    are read token by token."""

    def __init__(self, n, ratio, split, features):
        if n % ratio or n // ratio < split:
            raise ValueError(f"n: found {n}, needed a multiple of {ratio} with {split} segments")
        self.roots, self.split, self.ratio = n // ratio, split, ratio
        self.nodes = n + self.roots
        self.listed = self.roots + split * (ratio - 1)
        self.tree, self.rows = (1, self.nodes, features), (1, self.listed, features)
        self.shape = f"shape = #attn.tree<ratio = {ratio}, levels = 1>"
        self.nodes_listed = [operand(name, 1, self.listed, element="i32") for name in ("l", "i")]

    def random_tree(self, numbers):
        """Differences from their parent's row add up to zero."""
        tree = numbers.normal(*self.tree)
        leaves = tree[0, self.roots :].reshape(self.roots, self.ratio, -1)
        leaves -= leaves.mean(axis=1, keepdims=True)
        return tree

    def list(self):
        """Level and index of a selection, split segments evenly spread."""
        split = set(np.linspace(0, self.roots - 1, self.split).astype(int).tolist())
        level, index = [], []
        for x in range(self.roots):
            count = self.ratio if x in split else 1
            level += [int(x not in split)] * count
            index += range(x * count, (x + 1) * count)
        return [np.array([level], np.int32), np.array([index], np.int32)]


def tree_build(n, ratio=16, features=768, gradient=False):
    layer = _Layer(n, ratio, 0, features)
    kernel = Kernel("tree_build", [("ins", [operand("x", 1, n, features)])],
                    [("outs", [operand("t", *layer.tree)])], layer.shape)  # fmt: skip
    return Operation(kernel, gradient=gradient, moved_bytes=4 * (n + layer.nodes) * features)


def tree_materialize(n, ratio=16, features=768, gradient=False):
    layer = _Layer(n, ratio, 0, features)
    kernel = Kernel("tree_materialize", [("ins", [operand("t", *layer.tree)])],
                    [("outs", [operand("x", 1, n, features)])], layer.shape)  # fmt: skip
    return Operation(kernel, gradient=gradient, moved_bytes=4 * (n + layer.nodes) * features)


def tree_fetch(n, ratio=16, split=90, features=768, gradient=False):
    layer = _Layer(n, ratio, split, features)
    kernel = Kernel("tree_fetch", [("ins", [operand("t", *layer.tree)]), ("nodes", layer.nodes_listed)],
                    [("outs", [operand("r", *layer.rows)])], layer.shape)  # fmt: skip
    return Operation(kernel, lambda numbers: [layer.random_tree(numbers), *layer.list()], gradient=gradient,
                     moved_bytes=4 * (layer.listed + layer.nodes) * features)  # fmt: skip


def tree_update(n, ratio=16, split=90, features=768, gradient=False):
    layer = _Layer(n, ratio, split, features)
    tree = operand("t", *layer.tree)
    kernel = Kernel("tree_update", [("ins", [operand("new", *layer.rows)]), ("nodes", layer.nodes_listed)],
                    [("outs", [tree])], layer.shape).write_in_place()  # fmt: skip
    return Operation(
        kernel, lambda numbers: [numbers.normal(*layer.rows), *layer.list(), layer.random_tree(numbers)],
        gradient=gradient, moved_bytes=4 * (layer.listed + 2 * layer.nodes) * features,
    )  # fmt: skip


def tree_move(n, ratio=16, split=90, features=768):
    """Fetch and update in place, as layers do. Both read and write every row that they
    touch, the listed ones and their parents, once each."""
    layer = _Layer(n, ratio, split, features)
    t, r = (tensor(shape).replace("tensor", "memref") for shape in (layer.tree, layer.rows))
    nodes = f"nodes(%l, %i : {', '.join([f'memref<1x{layer.listed}xi32>'] * 2)})"
    body = (
        f"  attn.tree_fetch ins(%t : {t}) {nodes} outs(%r : {r}) {{{layer.shape}}}\n"
        f"  attn.tree_update ins(%new : {r}) {nodes} outs(%t : {t}) {{{layer.shape}}}\n"
    )
    arguments = [operand("t", *layer.tree), *layer.nodes_listed, operand("r", *layer.rows), operand("new", *layer.rows)]
    return Operation(
        Text(body, arguments, [], buffers_from=0),
        lambda numbers: [layer.random_tree(numbers), *layer.list(), numbers.normal(*layer.rows), numbers.normal(*layer.rows)],
        moved_bytes=16 * (layer.listed + split) * features,
    )


def tree_select(n, ratio=16, split=90, vip=48, heads=12, width=64):
    """Scores by the heads' probabilities; the segments' keys are given, since their
    projection is part of any layer."""
    layer = _Layer(n, ratio, split, heads * width)
    q, k = operand("q", 1, heads, vip, width), operand("k", 1, heads, layer.roots, width)
    rows, s = tensor((1, layer.roots, heads * width)), tensor((1, layer.roots))
    l = tensor((1, layer.listed), "i32")
    body = (
        f"  %a = tensor.empty() : {l}\n  %b = tensor.empty() : {l}\n"
        f"  %l, %i = attn.tree_select ins(%t : {tensor(layer.tree)}) outs(%a, %b : {l}, {l})\n"
        f"      {{{layer.shape}, budgets = array<i64: {split}>}} -> {l}, {l} score {{\n"
        f"  ^bb0(%rows: {rows}):\n    %e = tensor.empty() : {s}\n"
        f"    %s = attn.tree_score ins(%q, %k : {tensor(q[1])}, {tensor(k[1])}) outs(%e : {s}) -> {s}\n"
        f"    attn.yield %s : {s}\n  }}\n"
    )
    return Operation(Text(body, [operand("t", *layer.tree), q, k], layer.nodes_listed))


def tree_attend(n, ratio=16, split=90, vip=48, heads=12, width=64):
    """Attention over VIP tokens and listed rows."""
    rows = vip + _Layer(n, ratio, split, heads * width).listed
    q, weight = (1, heads, rows, width), operand("w", 1, 1, rows)
    kernel = Kernel("dense", [("ins", [operand(name, *q) for name in "qkv"]), ("log_weight", [weight])],
                    [("outs", [operand("o", *q)])])  # fmt: skip
    return Operation(kernel, lambda numbers: [numbers.normal(*q) for _ in range(3)] + [np.zeros(weight[1], np.float32)])


OPERATIONS = {
    made.__name__: made
    for made in (
        dense_backward, fast_multipole_backward, vq, vq_backward, vq_decode,
        conv_apply, conv_apply_backward, conv_backward, conv_recover, conv,
        low_rank, low_rank_backward, rope, polynomial_features, polynomial_features_backward,
        tree_build, tree_materialize, tree_fetch, tree_update, tree_move, tree_select, tree_attend,
    )
}  # fmt: skip
