# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pictures of the documentation: which query reads which token.

    pictures.py write <pattern.mlir>...     draws each to the .svg beside it
    pictures.py check <pattern.mlir>...     fails unless it shows what the reference reads

Queries of zeros give all scores the value 0, and the unit matrix as values makes a row
of the output the weights of the tokens: with plain means as summaries, that is how often a
query reads each token, over how many it reads in all. Tools are those on the path.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree

import numpy as np

NAMESPACE = "{http://www.w3.org/2000/svg}"


def draw(path):
    command = ["fovea-explain", path.name, "--emit=svg"]
    return subprocess.run(command, cwd=path.parent, check=True, capture_output=True, text=True).stdout


def count_all(text):
    """How often each entry of each soft-max is drawn, and by how many sources anything is."""
    found = [count_drawn(x) for x in tree.fromstring(text).iter(NAMESPACE + "svg") if x.get("class") == "matrix"]
    return [counts for counts, _ in found], sum(sources for _, sources in found)


def count_drawn(matrix):
    tokens, queries = map(int, matrix.get("viewBox").split()[2:])
    counts, sources = np.zeros((queries, tokens), int), 0
    for group in matrix.iter(NAMESPACE + "g"):
        rectangles = list(group.iter(NAMESPACE + "rect"))
        sources += bool(rectangles)
        for part in rectangles:
            assert part.get("fill-opacity") is None, "drawn by blocks"
            x, y, width, height = (int(part.get(name)) for name in ("x", "y", "width", "height"))
            assert x + width <= tokens and y + height <= queries, "outside of the frame"
            counts[y : y + height, x : x + width] += 1
    return counts, sources


def make_argument(name, shape, element):
    """Queries and keys of zeros, values of ones on the diagonal, means, and a code a token."""
    if element == "i32":
        return np.arange(shape[-1], dtype=np.int32).reshape(shape)
    if name == "v":
        return np.eye(shape[2], dtype=np.float32).reshape(shape)
    if re.fullmatch(r"[kv]\d", name):
        _, rank, interval, width = shape
        means = np.repeat(np.eye(rank, dtype=np.float32), interval // rank, axis=1) * (rank / interval)
        return np.broadcast_to(means[None, :, :, None], shape).astype(np.float32)
    return np.zeros(shape, np.float32)


def compute_weights(path, folder):
    header = re.search(r"func\.func @\w+\((.*?)\) ->", path.read_text(), re.S).group(1)
    command = ["fovea-run", str(path), "--target=reference", "--out", f"{folder}/out.npy"]
    for name, shape, element in re.findall(r"%(\w+): tensor<((?:\d+x)+)(\w+)>", header):
        argument = make_argument(name, tuple(map(int, shape.split("x")[:-1])), element)
        np.save(f"{folder}/{name}.npy", argument)
        command += ["--arg", f"{folder}/{name}.npy"]
    subprocess.run(command, check=True)
    return np.load(f"{folder}/out.npy")[0, 0]


def check(path):
    picture = path.with_suffix(".svg")
    text = picture.read_text()
    soft_maxes, sources = count_all(text)
    with tempfile.TemporaryDirectory() as folder:
        weights = compute_weights(path, folder)
    # What several compute is their mean.
    wanted = sum(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1) for counts in soft_maxes) / len(soft_maxes)
    wrong = np.argwhere(np.abs(weights - wanted) > 1e-6)
    if len(wrong):
        query, token = wrong[0]
        sys.exit(
            f"{picture.name}: query {query} reads token {token} with weight {weights[query, token]:.4f},"
            f" drawn is {wanted[query, token]:.4f}; {len(wrong)} entries differ"
        )
    if draw(path) != text:
        sys.exit(f"{picture.name}: not what fovea-explain draws; renew it by pictures.py write")
    entries = sum(counts.sum() for counts in soft_maxes)
    print(f"{picture.name}: {entries} entries of {sources} sources")


def main():
    action, *names = sys.argv[1:]
    for path in map(pathlib.Path, names):
        if action == "write":
            path.with_suffix(".svg").write_text(draw(path))
        else:
            check(path)


main()
