# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes model.mlir, constants beside it, what it computes, and bad constants.

    constants.py <folder>
"""

import json
import pathlib
import sys

import numpy as np

MODEL = """
func.func private @taken() { return }
func.func @main(%table: tensor<7x4xf32>, %w: tensor<4x3xf32>, %order: tensor<5xi64>, %hides: tensor<5xi1>, %none: tensor<0x2xbf16>,
                %ids: tensor<5xi64>, %bias: tensor<?xf32>) -> (tensor<5x?xf32>, tensor<5xi64>) {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %n = tensor.dim %bias, %c0 : tensor<?xf32>
  %rows = tensor.empty() : tensor<5x4xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%ids, %hides : tensor<5xi64>, tensor<5xi1>) outs(%rows : tensor<5x4xf32>) {
  ^bb0(%id: i64, %hide: i1, %out: f32):
    %i = arith.index_cast %id : i64 to index
    %j = linalg.index 1 : index
    %e = tensor.extract %table[%i, %j] : tensor<7x4xf32>
    %f = arith.select %hide, %zero, %e : f32
    linalg.yield %f : f32
  } -> tensor<5x4xf32>
  %empty = tensor.empty() : tensor<5x3xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<5x3xf32>) -> tensor<5x3xf32>
  %y = linalg.matmul ins(%x, %w : tensor<5x4xf32>, tensor<4x3xf32>) outs(%init : tensor<5x3xf32>) -> tensor<5x3xf32>
  %c3 = arith.constant 3 : index
  %ok = arith.cmpi eq, %n, %c3 : index
  cf.assert %ok, "needed three biases"
  %cast = tensor.cast %y : tensor<5x3xf32> to tensor<5x?xf32>
  %result = tensor.empty(%n) : tensor<5x?xf32>
  %z = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%cast, %bias : tensor<5x?xf32>, tensor<?xf32>) outs(%result : tensor<5x?xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<5x?xf32>
  return %z, %order : tensor<5x?xf32>, tensor<5xi64>
}
"""
TYPES = {"float32": "F32", "int64": "I64", "bool": "BOOL", "uint16": "BF16"}


def encode(header, data):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(header).to_bytes(8, "little") + header + data


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    table, weight = rng.standard_normal((7, 4), np.float32), rng.standard_normal((4, 3), np.float32)
    order, hides = np.arange(5)[::-1], np.array([0, 1, 0, 0, 1], bool)
    ids, bias = np.array([6, 0, 3, 3, 1]), rng.standard_normal(3, np.float32)
    constants = {"table": table, "layer.w": weight, "order": order, "hides": hides, "none": np.zeros((0, 2), np.uint16)}

    header, data = {"__metadata__": {"fovea.arguments": json.dumps(["ids", "bias"])}}, b""
    for name, array in constants.items():
        place = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": TYPES[array.dtype.name], "shape": array.shape, "data_offsets": place}
        data += array.tobytes()
    (folder / "model.mlir").write_text(MODEL)
    # Elements lie anywhere.
    (folder / "model.safetensors").write_bytes(encode(json.dumps(header).encode() + b" " * 3, data))
    for name, array in ("ids", ids), ("bias", bias), ("order", order):
        np.save(folder / f"{name}.npy", array)
    np.save(folder / "expected.npy", np.where(hides[:, None], 0, table[ids]) @ weight + bias)

    def changed(**options):
        return {**header, "layer.w": {**header["layer.w"], **options}}

    without = {name: entry for name, entry in header.items() if name != "order"}
    bad = {
        "short": b"\0" * 7,
        "long": (1 << 40).to_bytes(8, "little") + b"{}",
        "cut": encode(header, data[:-1]),
        "text": encode(b"table", data),
        "deep": encode(b'{"a":' * 1_000_000, data),
        "list": encode(b"[1]", data),
        "unmarked": encode({"table": header["table"]}, data),
        "names": encode({**header, "__metadata__": {"fovea.arguments": '[1, "bias"]'}}, data),
        "deep-names": encode({**header, "__metadata__": {"fovea.arguments": "[" * 1_000_000}}, data),
        "type": encode(changed(dtype="C64"), data),
        "shape": encode(changed(shape=[4, -3]), data),
        "overflow": encode(changed(shape=[1 << 40, 1 << 40]), data),
        "place": encode(changed(data_offsets=[160, 112]), data),
        "fraction": encode(changed(data_offsets=[0.5, 48.5]), data),
        "entry": encode({**header, "layer.w": 3}, data),
        "turned": encode(changed(shape=[3, 4]), data),
        "fewer": encode(without, data),
    }
    for name, file in bad.items():
        (folder / f"{name}.safetensors").write_bytes(file)


if __name__ == "__main__":
    main(*sys.argv[1:])
