# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions of linalg, as in front of models of images and sound, against NumPy and plain loops."""

import numpy as np
from cases import BOUNDS, Checker, normal, state, tensor

check = Checker()

# Dimensions of input, filter and output: a batch, channels in, channels out, pixels; g are groups.
OPS = {
    "conv_1d_ncw_fcw": ("ncw", "fcw", "nfw"), "conv_1d_nwc_wcf": ("nwc", "wcf", "nwf"),
    "conv_2d_nchw_fchw": ("nchw", "fchw", "nfhw"), "conv_2d_nhwc_hwcf": ("nhwc", "hwcf", "nhwf"),
    "conv_2d_nhwc_fhwc": ("nhwc", "fhwc", "nhwf"), "conv_3d_ncdhw_fcdhw": ("ncdhw", "fcdhw", "nfdhw"),
    # Without channels that all meet all others, these stay loops.
    "conv_2d_ngchw_gfchw": ("ngchw", "gfchw", "ngfhw"), "depthwise_conv_2d_nchw_chw": ("nchw", "chw", "nchw"),
}  # fmt: skip
# Batch, channels in and out, groups, pixels of the output along all dimensions.
SIZES = [dict(n=1, c=1, f=1, g=1, out=1), dict(n=2, c=3, f=5, g=2, out=3), dict(n=1, c=7, f=16, g=3, out=16),
         dict(n=3, c=16, f=33, g=1, out=17)]  # fmt: skip
# Extent of the filter, stride, dilation. Filters of one pixel need no copy, patches do not overlap.
WINDOWS = [(1, 1, 1), (1, 2, 1), (3, 1, 1), (3, 2, 1), (3, 1, 2), (4, 4, 1), (16, 16, 1), (2, 5, 3)]


def convolve(x, w, names, window, out):
    """One product for each position within the filter."""
    (source, weights, target), (extent, stride, dilation) = names, window
    pixels = [name for name in source if name in "dhw"]
    result = 0.0
    for at in np.ndindex(*[extent] * len(pixels)):
        place = dict(zip(pixels, at))
        taken = x[tuple(
            slice(place[name] * dilation, place[name] * dilation + stride * (out - 1) + 1, stride) if name in place
            else slice(None) for name in source
        )]  # fmt: skip
        tap = w[tuple(place[name] if name in place else slice(None) for name in weights)]
        kept = "".join(name for name in weights if name not in place)
        result = result + np.einsum(f"{source},{kept}->{target}", taken, tap)
    return result


def run(index, case):
    rng = np.random.default_rng(index)
    names, sizes, dtype = OPS[case["op"]], case["sizes"], case["dtype"]
    extent, stride, dilation = window = case["window"]
    source, weights, target = names
    rank = sum(name in "dhw" for name in source)
    out, out_dtype = sizes["out"], state(dtype) if case["wide"] else dtype
    if rank == 3:
        out = min(out, 4)
    reach = stride * (out - 1) + dilation * (extent - 1) + 1 + case["rest"]
    if reach**rank * sizes["n"] * sizes["c"] > 2**19:
        return
    x = normal(rng, [reach if name in "dhw" else sizes[name] for name in source], dtype)
    w = normal(rng, [extent if name in "dhw" else sizes[name] for name in weights], dtype)
    start = normal(rng, [out if name in "dhw" else sizes[name] for name in target], out_dtype)
    types = [tensor([None] * each.ndim if case["dynamic"] else each.shape, kind)
             for each, kind in ((x, dtype), (w, dtype), (start, out_dtype))]  # fmt: skip
    a, b, c = types
    text = (
        f"func.func @f(%a: {a}, %b: {b}, %c: {c}) -> {c} {{\n"
        f"  %r = linalg.{case['op']} {{strides = dense<{stride}> : tensor<{rank}xi64>, "
        f"dilations = dense<{dilation}> : tensor<{rank}xi64>}}\n"
        f"      ins(%a, %b : {a}, {b}) outs(%c : {c}) -> {c}\n  return %r : {c}\n}}\n"
    )
    wide = [each.astype(np.float64) for each in (x, w, start)]
    expected = convolve(wide[0], wide[1], names, window, out) + wide[2]
    for way in ("cpu", "reference"):
        kernel = check.library.compile(text, target=way, cpu=case["cpu"])
        what = f"convolution {index} {case} {way}"
        found = check.call(kernel, [x, w, start], what)[0]
        # Plain loops round narrow sums at every step, as the IR says.
        rounds = out_dtype in ("bf16", "f16") and (way == "reference" or "g" in source or "f" not in weights)
        if not rounds:
            check.close(found, expected, BOUNDS[out_dtype], what)


check.matrix({
    "op": list(OPS), "sizes": SIZES, "window": WINDOWS, "dtype": ["f32", "f64", "bf16", "f16"], "wide": [False, True],
    "rest": [0, 1], "cpu": check.usable_cpus(), "dynamic": [False, True],
}, 7, run)  # fmt: skip
check.finish()
