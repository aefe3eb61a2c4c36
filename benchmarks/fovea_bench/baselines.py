# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The same work by other libraries, in a process of its own.

    python baselines.py LIBRARY SPEC

SPEC is a JSON object with the fields of the workload; the times of the runs, in
seconds, go to standard output as JSON. Exit status 3: the library is not installed
or lacks the type.
"""

import json
import math
import pathlib
import sys
import time

MISSING = 3


def _torch(spec):
    try:
        import torch
    except ImportError:
        sys.exit(MISSING)
    import numpy as np

    torch.set_num_threads(spec["threads"])
    tensors = []
    for path in spec["inputs"]:
        array = np.load(path)
        tensor = torch.from_numpy(array.view(np.int16) if array.dtype == np.uint16 else array)
        tensors.append(tensor.view(torch.bfloat16) if array.dtype == np.uint16 else tensor)
    q, k, v = tensors
    if k.shape[1] != q.shape[1]:
        # A copy made once, outside the measured time.
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    attention = torch.nn.functional.scaled_dot_product_attention

    def run():
        with torch.no_grad():
            attention(q, k, v, is_causal=spec.get("causal", False))

    return run, torch.__version__


def _numpy(spec):
    try:
        import numpy as np
    except ImportError:
        sys.exit(MISSING)
    make = {"vq": _numpy_vq, "vq_decode": _numpy_read, "conv_apply": _numpy_conv}.get(spec["op"], _numpy_dense)
    return make(np, spec), np.__version__


def _scipy(spec):
    try:
        import numpy as np
        import scipy
        import scipy.fft
    except ImportError:
        sys.exit(MISSING)
    return _numpy_conv(np, spec, scipy.fft), scipy.__version__


def _numpy_conv(np, spec, fft=None):
    """Transforms as the paper has them."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    from fovea_bench.reference import conv_apply_fft

    arrays = [np.load(path) for path in spec["inputs"]]
    return lambda: conv_apply_fft(*arrays, fft or np.fft)


def _numpy_read(np, spec):
    """Reads as much memory as a decoded token has to: codebook, means, values and codes
    of the blocks that are kept."""
    arrays = [np.load(path).ravel() for path in spec["inputs"][3:]]
    whole = np.ones(sum(array.nbytes for array in arrays if array.size > 1) // 4, np.float32)
    return whole.max


def _numpy_vq(np, spec):
    """The linear form as one writes it down, block by block."""
    q, z, v, c = (np.load(path)[0] for path in spec["inputs"][:4])
    q, z, v = q[0], z[0], v[0]
    block, codes = spec.get("block", 512), len(c)
    mask = np.tril(np.ones((block, block), bool))

    def run():
        sums, count = np.zeros((codes, v.shape[1]), np.float32), np.zeros(codes)
        for low in range(0, len(q), block):
            rows = slice(low, low + block)
            scores = q[rows] @ c.T
            with np.errstate(divide="ignore"):
                cached = scores + np.log(count).astype(np.float32)
            local = np.where(mask, scores[:, z[rows]], -np.inf)
            top = np.maximum(cached.max(1), local.max(1))[:, None]
            p, r = np.exp(cached - top), np.exp(local - top)
            mean = sums / np.maximum(count, 1)[:, None].astype(np.float32)
            (p @ mean + r @ v[rows]) / (p.sum(1) + r.sum(1))[:, None]
            np.add.at(sums, z[rows], v[rows])
            count += np.bincount(z[rows], minlength=codes)

    return run


def _numpy_dense(np, spec):
    q, k, v = (np.load(path) for path in spec["inputs"])
    if q.dtype not in (np.float32, np.float64):
        sys.exit(MISSING)
    scale = q.dtype.type(1 / math.sqrt(q.shape[3]))
    ratio = q.shape[1] // k.shape[1]
    future = None
    if spec.get("causal"):
        future = ~np.tri(q.shape[2], k.shape[2], k.shape[2] - q.shape[2], dtype=bool)

    def run():
        for b in range(q.shape[0]):
            for h in range(q.shape[1]):
                scores = (q[b, h] * scale) @ k[b, h // ratio].T
                if future is not None:
                    scores[future] = -np.inf
                scores -= scores.max(axis=1, keepdims=True)
                np.exp(scores, out=scores)
                total = scores.sum(axis=1, keepdims=True)
                (scores @ v[b, h // ratio]) / total

    return run


def main():
    library, spec = sys.argv[1], json.loads(sys.argv[2])
    run, version = {"torch": _torch, "numpy": _numpy, "scipy": _scipy}[library](spec)
    run()
    now = time.thread_time if spec["clock"] == "cpu" else time.perf_counter
    times = []
    start = now()
    while len(times) < 3 or now() - start < spec["seconds"]:
        begin = now()
        run()
        times.append(now() - begin)
    json.dump({"version": version, "times": times}, sys.stdout)


if __name__ == "__main__":
    main()
