# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles what run.py measures, on any machine with fovea-compile and fovea-run: a
shared library for each kernel, and manifest.json, which says what they compute and how
many floating-point operations that asks for."""

import argparse
import json
import pathlib
import subprocess

LENGTHS = [1024, 4096, 16384, 65536, 131072]


def tensor(*shape, type="bf16"):
    return "tensor<" + "".join(f"{'?' if n is None else n}x" for n in shape) + type + ">"


def dense(D, causal, H=64, G=8, N=None):
    q, k = tensor(1, H, N, D), tensor(1, G, N, D)
    mask = " {mask = #attn.mask<causal>}" if causal else ""
    return (f"func.func @f(%q: {q}, %k: {k}, %v: {k}, %o: {q}) -> {q} {{\n"
            f"  %r = attn.dense ins(%q, %k, %v : {q}, {k}, {k}) outs(%o : {q}){mask} -> {q}\n"
            f"  return %r : {q}\n}}\n")


def dense_in_clusters(D, keys, H=64, G=8):
    """Causal, in tiles of so many keys, which blocks for two heads copy for one another."""
    q, k = tensor(1, H, None, D), tensor(1, G, None, D)
    tiles = f"#attn.tiles<query = 128, key = {keys}, lanes = 64, vectors = 2, keys = 8, columns = 8, cluster = 2>"
    return (f"func.func @f(%q: {q}, %k: {k}, %v: {k}, %o: {q}) -> {q} {{\n"
            f"  %r = attn.stream query(%q : {q}) source(%k, %v : {k}, {k}) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>\n"
            f"      outs(%o : {q}) {{scale = {D ** -0.5!r} : f64, tiles = {tiles}}} -> {q}\n  return %r : {q}\n}}\n")


def multipole_weights(D, N, group, rank):
    """Types of the weights of all levels."""
    weights, length = [], group
    while length * 4 <= N:
        weights.append(tensor(1, rank, length, D))
        length *= 2
    return weights


def multipole(D, N, group, rank, H=64, G=8):
    q, k = tensor(1, H, N, D), tensor(1, G, N, D)
    weights = multipole_weights(D, N, group, rank)
    names = [f"%w{i}" for i in range(len(weights))]
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, weights))
    listed = f"{', '.join(names)} : {', '.join(weights)}"
    return (f"func.func @f(%q: {q}, %k: {k}, %v: {k}, {arguments}) -> {q} {{\n"
            f"  %o = tensor.empty() : {q}\n"
            f"  %r = attn.fast_multipole ins(%q, %k, %v : {q}, {k}, {k}) key_weights({listed}) value_weights({listed})\n"
            f"      outs(%o : {q}) {{group = {group} : i64, causal}} -> {q}\n  return %r : {q}\n}}\n"), weights


def multipole_backward(D, N, group, rank, H=64, G=8):
    q, k, l = tensor(1, H, N, D), tensor(1, G, N, D), tensor(1, H, N, type="f32")
    weights = multipole_weights(D, N, group, rank)
    names = [f"%w{i}" for i in range(len(weights))]
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, weights))
    listed = f"{', '.join(names)} : {', '.join(weights)}"
    kinds = ", ".join([q, k, k, *weights, *weights])
    count = 3 + 2 * len(weights)
    return (f"func.func @f(%q: {q}, %k: {k}, %v: {k}, {arguments}, %out: {q}, %lse: {l}, %d: {q}) -> ({kinds}) {{\n"
            f"  %r:{count} = attn.fast_multipole_backward ins(%q, %k, %v : {q}, {k}, {k}) key_weights({listed})\n"
            f"      value_weights({listed}) forward(%out, %lse : {q}, {l}) gradient(%d : {q}) outs(%q, %k, %v : {q}, {k}, {k})\n"
            f"      d_key_weights({listed}) d_value_weights({listed}) {{group = {group} : i64, causal}} -> {kinds}\n"
            f"  return {', '.join(f'%r#{i}' for i in range(count))} : {kinds}\n}}\n")


def vq(D, N, S, block, H=64, G=8):
    q, k, c, z = tensor(1, H, N, D), tensor(1, G, N, D), tensor(G, S, D), tensor(1, G, N, type="i32")
    return (f"func.func @f(%q: {q}, %k: {k}, %v: {k}, %c: {c}) -> {q} {{\n  %zi = tensor.empty() : {z}\n"
            f"  %z = attn.quantize ins(%k, %c : {k}, {c}) outs(%zi : {z}) -> {z}\n  %o = tensor.empty() : {q}\n"
            f"  %r = attn.vq ins(%q, %z, %v, %c : {q}, {z}, {k}, {c}) outs(%o : {q})\n"
            f"      {{block = {block} : i64, scale = {D ** -0.5!r} : f64, causal, reduction = #attn.reduction<associative>}} -> {q}\n"
            f"  return %r : {q}\n}}\n")


def vq_backward(D, N, S, block, H=64, G=8):
    q, k, c = tensor(1, H, N, D), tensor(1, G, N, D), tensor(G, S, D)
    z, l = tensor(1, G, N, type="i32"), tensor(1, H, N, type="f32")
    return (f"func.func @f(%q: {q}, %z: {z}, %v: {k}, %c: {c}, %o: {q}, %l: {l}, %d: {q}) -> ({q}, {k}, {k}) {{\n"
            f"  %r:3 = attn.vq_backward ins(%q, %z, %v, %c : {q}, {z}, {k}, {c}) forward(%o, %l : {q}, {l}) gradient(%d : {q})\n"
            f"      outs(%q, %v, %v : {q}, {k}, {k}) {{block = {block} : i64, scale = {D ** -0.5!r} : f64, causal}} -> {q}, {k}, {k}\n"
            f"  return %r#0, %r#1, %r#2 : {q}, {k}, {k}\n}}\n")


def single(kind="keys", queries=1):
    """Queries of 128 sequences, 64 heads on 8, D = 128, of all keys, of those that codes name, or of codewords with means in f32."""
    q, k, c, z = tensor(128, 64, queries, 128), tensor(128, 8, None, 128), tensor(1, 8, 512, 128), tensor(128, 8, None, type="i32")
    m, w = tensor(128, 8, 512, 128, type="f32"), tensor(128, 8, 512, type="f32")
    source = {"keys": f"source(%k, %v : {k}, {k})", "codes": f"source(%c, %v : {c}, {k}) codes(%z : {z})",
              "means": f"source(%c, %m : {c}, {m}) log_weight(%w : {w})"}[kind]
    return (f"func.func @f(%q: {q}, %k: {k}, %v: {k}, %c: {c}, %z: {z}, %m: {m}, %w: {w}) -> {q} {{\n  %o = tensor.empty() : {q}\n"
            f"  %r = attn.stream query(%q : {q}) {source} ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : {q})"
            f" {{scale = 1.0 : f64}} -> {q}\n  return %r : {q}\n}}\n")


def kernels():
    """Entries of the manifest, each with its IR."""
    for D in (64, 128):
        for causal in (True, False):
            shapes = [[1, 64, None, D]] + [[1, 8, None, D]] * 2 + [[1, 64, None, D]]
            yield {"pattern": "dense", "D": D, "causal": causal, "arguments": shapes}, dense(D, causal)
    # Of D = 128, to see whether clusters should be the default.
    yield {"pattern": "dense_clusters", "D": D, "causal": True, "chips": ["sm_90a"], "arguments": shapes}, dense_in_clusters(D, 128)
    D, N = 128, 65536
    text, weights = multipole(D, N, 128, 4)
    lengths = [128 << i for i in range(len(weights))]
    yield {"pattern": "fast_multipole", "D": D, "N": N, "causal": True, "group": 128, "rank": 4,
           "arguments": [[1, 64, N, D]] + [[1, 8, N, D]] * 2 + [[1, 4, n, D] for n in lengths]}, text
    N = 131072
    yield {"pattern": "vq", "D": D, "N": N, "causal": True, "codes": 512, "block": 512,
           "arguments": [[1, 64, N, D]] + [[1, 8, N, D]] * 2 + [[8, 512, D]]}, vq(D, N, 512, 512)


def count(runner, text, entry, lengths):
    """Useful GFLOP by number of tokens."""
    found = {}
    for N in [entry["N"]] if "N" in entry else lengths:
        shapes = ["x".join(str(N if n is None else n) for n in shape) for shape in entry["arguments"] if None in shape]
        # The loops that define it: tiles for a GPU make code for a CPU that LLVM takes minutes for.
        command = [runner, "-", "--target=reference", "--print-signature", "--json", *(f"--shape={shape}" for shape in shapes)]
        report = subprocess.run(command, input=text, text=True, check=True, stdout=subprocess.PIPE).stdout
        found[str(N)] = json.loads(report)["useful_gflop"]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--compiler", default="build/bin/fovea-compile")
    parser.add_argument("--runner", default="build/bin/fovea-run")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="that run.py may measure")
    parser.add_argument("--chips", nargs="+", default=["sm_80", "sm_90a"])
    parser.add_argument("--only", help="compile this pattern alone")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    manifest = []
    for entry, text in kernels():
        if options.only and entry["pattern"] != options.only:
            continue
        entry["gflop"] = count(options.runner, text, entry, options.lengths)
        for chip in options.chips:
            if chip not in entry.get("chips", [chip]):
                continue
            name = "-".join([entry["pattern"], f"d{entry['D']}", "causal" if entry["causal"] else "full", chip]) + ".so"
            subprocess.run([options.compiler, "-", "--target=nvvm", f"--chip={chip}", "--emit=so", "-o",
                            str(options.folder / name)], input=text, text=True, check=True)
            manifest.append(entry | {"chip": chip, "library": name})
            print(name)
    (options.folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
