# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures the kernels of artefacts.py on a GPU, beside PyTorch. Needs Python,
PyTorch, a driver and libfovea_rt.so; builds nothing.

Times are medians of the device's events on PyTorch's stream, with inputs and
results on the device. FLOPs are the useful ones that the compiler counts. Fractions are of what a large product and a large copy
reach on the same device in the same run; bytes are those of inputs and result.
Some queries of every result are compared with f64."""

import argparse
import json
import math
import pathlib
import statistics
import sys

from kernel import Kernel, Runtime

SAMPLES = 64  # queries that are compared with f64
ERROR_BOUND = 1e-2  # of the greatest number


def find_torch():
    """PyTorch, or why nothing can be measured."""
    try:
        import torch
    except ImportError:
        return None, "there is no PyTorch on this machine"
    if not torch.cuda.is_available():
        return None, "there is no CUDA device that PyTorch can use on this machine"
    return torch, None


class Bench:
    def __init__(self, torch, seconds):
        self.torch, self.seconds = torch, seconds

    def time(self, run):
        """Median seconds on the device."""
        torch = self.torch
        for _ in range(3):
            run()
        torch.cuda.synchronize()
        times: list[float] = []
        while sum(times) < self.seconds or len(times) < 5:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e-3)
            if len(times) >= 200:
                break
        return statistics.median(times)

    def peaks(self, rows):
        """What a large product and a large copy reach."""
        torch = self.torch
        a = torch.randn(rows, rows, device="cuda", dtype=torch.bfloat16)
        b = torch.randn_like(a)
        x = torch.empty(16 * rows**2, device="cuda", dtype=torch.uint8)
        y = torch.empty_like(x)
        return {"gemm_rows": rows,
                "gemm_tflops": 2 * rows**3 / self.time(lambda: a @ b) * 1e-12,
                "copy_gbps": 2 * x.numel() / self.time(lambda: y.copy_(x)) * 1e-9}

    def rivals(self, q, k, v, causal):
        """PyTorch's own attention, each back end that takes the data."""
        torch = self.torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        attend = torch.nn.functional.scaled_dot_product_attention
        found = {}
        for name in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"):
            try:
                with sdpa_kernel(getattr(SDPBackend, name)):
                    found[f"sdpa {name.split('_')[0].lower()}"] = self.time(
                        lambda: attend(q, k, v, is_causal=causal, enable_gqa=True))
            except (RuntimeError, AttributeError) as failure:
                print(f"  sdpa {name}: {str(failure).splitlines()[0]}", file=sys.stderr)
        try:
            from torch.nn.attention.flex_attention import create_block_mask, flex_attention

            flex = torch.compile(flex_attention)
            mask = None
            if causal:
                mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, q.shape[2], k.shape[2])
            found["flex"] = self.time(lambda: flex(q, k, v, block_mask=mask, enable_gqa=True))
        except Exception as failure:  # any part of the compiler may be missing
            print(f"  flex: {str(failure).splitlines()[0]}", file=sys.stderr)
        return found


def nearest(torch, k, codes):
    """Keys replaced by their codewords."""
    scores = codes.square().sum(-1)[None, :, None] - 2 * (k @ codes.transpose(-1, -2))
    chosen = scores.argmin(-1)
    return torch.stack([codes[head][chosen[0, head]] for head in range(codes.shape[0])])[None]


def sources(torch, entry, k, v, others, rows):
    """What queries `rows` read: keys, values, the weight of a row, and who reads
    which row."""
    tokens = torch.arange(k.shape[2], device="cuda")
    at = rows[:, None]
    if entry["pattern"] == "vq":
        # Means of values and counts by codeword say the same as all tokens do.
        k = nearest(torch, k, others[0].double())
    read = tokens <= at if entry["causal"] else tokens >= 0 * at
    if entry["pattern"] != "fast_multipole":
        return [(k, v, 1, read)]
    group, rank = entry["group"], entry["rank"]
    found = [(k, v, 1, read & (tokens >= at // group * group - group))]
    for level in range(len(others)):
        length = group << level
        own = at // length
        means = [x.reshape(x.shape[0], x.shape[1], -1, length // rank, x.shape[3]).mean(3) for x in (k, v)]
        interval = torch.arange(means[0].shape[2], device="cuda") // rank
        read = interval < own - 1
        if level < len(others) - 1:
            read = read & (interval >= own // 2 * 2 - 2)
        found.append((*means, length // rank, read))
    return found


def expected(torch, entry, inputs, rows):
    """The attention of some queries in f64."""
    q, k, v = (x.double() for x in inputs[:3])
    batch, heads, _, width = q.shape
    # Heads that share keys are rows of one product.
    q = q[:, :, rows].reshape(batch, k.shape[1], -1, width)
    found = sources(torch, entry, k, v, inputs[3:], rows)
    scores = []
    for keys, _, weight, read in found:
        score = (q @ keys.transpose(-1, -2) * width**-0.5 + math.log(weight)).reshape(batch, heads, len(rows), -1)
        scores.append(score.masked_fill(~read, -torch.inf))
    p = torch.cat(scores, -1).softmax(-1)
    p = p.reshape(batch, k.shape[1], -1, p.shape[-1])
    return (p @ torch.cat([values for _, values, _, _ in found], 2)).reshape(batch, heads, len(rows), -1)


def make_inputs(torch, entry, N):
    torch.manual_seed(N)
    shapes = [[N if extent is None else extent for extent in shape] for shape in entry["arguments"]]
    inputs = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes]
    if entry["pattern"] == "fast_multipole":
        # Means of the tokens, as in the reference: summary a of p averages a p-th.
        for tensor in inputs[3:]:
            rank, length = tensor.shape[1:3]
            tensor.zero_()
            for a in range(rank):
                part = slice(a * length // rank, (a + 1) * length // rank)
                tensor[:, a, part] = rank / length
    return inputs


class Result:
    """Memory of the device that others may look at."""

    def __init__(self, address, shape, type):
        self.__cuda_array_interface__ = {"data": (address, False), "shape": shape, "typestr": type, "version": 3}


def measure(bench, runtime, folder, entry, N, peaks):
    torch = bench.torch
    kernel = Kernel(runtime, str(folder / entry["library"]))
    inputs = make_inputs(torch, entry, N)
    arguments = [(x.data_ptr(), list(x.shape)) for x in inputs]
    row = {key: entry[key] for key in ("pattern", "D", "causal", "chip")} | {"N": N}

    def run():
        kernel(arguments)
        kernel.free()

    address, shape = kernel(arguments)
    # bf16 has no name in this interface.
    out = torch.as_tensor(Result(address, tuple(shape), "<i2"), device="cuda").view(torch.bfloat16) + 0
    torch.cuda.synchronize()
    kernel.free()
    rows = torch.randint(0, N, (SAMPLES,), device="cuda")
    wanted = expected(torch, entry, inputs, rows)
    row["error"] = float((out[:, :, rows].double() - wanted).abs().max() / wanted.abs().max())
    if not row["error"] <= ERROR_BOUND:
        raise RuntimeError(f"{entry['library']}: error {row['error']:.3g}, bound {ERROR_BOUND}")
    row["seconds"] = bench.time(run)
    row["tflops"] = entry["gflop"][str(N)] / row["seconds"] * 1e-3
    bytes = 2 * (sum(x.numel() for x in inputs) + inputs[0].numel())
    row["gbps"] = bytes / row["seconds"] * 1e-9
    row["of_gemm"] = row["tflops"] / peaks["gemm_tflops"]
    row["of_copy"] = row["gbps"] / peaks["copy_gbps"]
    if entry["pattern"] == "dense":
        row["others"] = bench.rivals(*inputs[:3], entry["causal"])
    return row


def print_table(rows, peaks):
    print(f"product of {peaks['gemm_rows']}: {peaks['gemm_tflops']:.0f} TFLOP/s, copy: {peaks['copy_gbps']:.0f} GB/s\n")
    print("| pattern | D | mask | N | chip | ms | TFLOP/s | of the product | of the copy | error | others, ms |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        others = ", ".join(f"{name} {seconds * 1e3:.3g}" for name, seconds in row.get("others", {}).items())
        print(f"| {row['pattern']} | {row['D']} | {'causal' if row['causal'] else 'full'} | {row['N']} | {row['chip']} "
              f"| {row['seconds'] * 1e3:.4g} | {row['tflops']:.0f} | {row['of_gemm']:.1%} | {row['of_copy']:.1%} "
              f"| {row['error']:.1e} | {others} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="what artefacts.py has written")
    parser.add_argument("--runtime", default="libfovea_rt.so")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each measurement")
    parser.add_argument("--lengths", type=int, nargs="+", help="of those that the manifest has")
    parser.add_argument("--peak-rows", type=int, default=8192, help="rows of the large product")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    torch, reason = find_torch()
    if reason:
        raise SystemExit(f"nothing to measure: {reason}")
    runtime, bench = Runtime(options.runtime), Bench(torch, options.seconds)
    runtime.set_stream(torch.cuda.current_stream().cuda_stream)
    peaks, rows = bench.peaks(options.peak_rows), []
    exact = "sm_{}{}a".format(*torch.cuda.get_device_capability())
    for entry in json.loads((options.folder / "manifest.json").read_text()):
        if entry["chip"].endswith("a") and entry["chip"] != exact:
            continue
        for N in map(int, entry["gflop"]):
            if "N" not in entry and options.lengths and N not in options.lengths:
                continue
            rows.append(measure(bench, runtime, options.folder, entry, N, peaks))
    print_table(rows, peaks)
    if options.json:
        report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "peaks": peaks, "rows": rows}
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
