# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dense attention by other libraries, in a process of its own.

    python baselines.py LIBRARY SPEC

SPEC is a JSON object; the times of the runs, in seconds, go to standard output
as JSON. Exit status 3: the library is not installed or lacks the type.
"""

import json
import math
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
            attention(q, k, v, is_causal=spec["causal"])

    return run, torch.__version__


def _numpy(spec):
    try:
        import numpy as np
    except ImportError:
        sys.exit(MISSING)
    q, k, v = (np.load(path) for path in spec["inputs"])
    if q.dtype not in (np.float32, np.float64):
        sys.exit(MISSING)
    scale = q.dtype.type(1 / math.sqrt(q.shape[3]))
    ratio = q.shape[1] // k.shape[1]
    future = None
    if spec["causal"]:
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

    return run, np.__version__


def main():
    library, spec = sys.argv[1], json.loads(sys.argv[2])
    run, version = {"torch": _torch, "numpy": _numpy}[library](spec)
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
