# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments that are no tensors, or none of the needed kind: one error that names them."""

import numpy as np
import pytest
import torch
from torch_cases import CASES

import fovea.torch

# Those that make several calls name the arguments of these.
OWN = {name: case for name, case in CASES.items() if isinstance(case.function, str)}


@pytest.mark.parametrize("case", OWN.values(), ids=OWN)
def test_what_is_no_tensor_is_named(case):
    arguments = case.arguments()
    for name, value in arguments.items():
        if isinstance(value, list):
            wrong = {"list of tensors": "text", "tensor": [*value[:-1], value[-1].numpy()]}
        elif isinstance(value, torch.Tensor):
            wrong = {"tensor": value.numpy()}
        else:
            continue
        for needed, given in wrong.items():
            at = rf"\[{len(given) - 1}\]" if isinstance(given, list) else ""
            needed = rf"^{name}{at}: found ndarray, needed a tensor$" if needed == "tensor" else rf"^{name}"
            with pytest.raises(ValueError, match=needed):
                case(**{**arguments, name: given})
        if name in case.gradients and not isinstance(value, list):
            # What may be left out is no error.
            try:
                case(**{**arguments, name: None})
            except ValueError as error:
                assert str(error).startswith(f"{name}: found NoneType, needed ")


def test_parts_of_sources_are_named():
    q, k = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8)
    source = fovea.torch.Source(k, k)
    with pytest.raises(ValueError, match=r"^sources\[1\].v: found ndarray, needed a tensor$"):
        fovea.torch.stream(q, [source, fovea.torch.Source(k, k.numpy())])
    with pytest.raises(ValueError, match=r"^sources\[1\].v: found a tensor on meta, needed all tensors on the same device, cpu$"):
        fovea.torch.stream(q, [source, fovea.torch.Source(k, k.to("meta"))])
    with pytest.raises(ValueError, match=r"^summaries: found ndarray, needed a tensor$"):
        fovea.torch.hca(q, k, k.numpy(), interval=1)
    with pytest.raises(ValueError, match="^q: found ndarray, needed a tensor$"):
        fovea.torch.hca(q.numpy(), k, k, interval=1)


def test_positions_are_integers_of_32_bits():
    x = torch.randn(1, 2, 3, 8)
    expected = fovea.torch.rope(x, torch.arange(3, dtype=torch.int32))
    for kind in (torch.int64, torch.uint8, torch.uint32, torch.uint64):
        assert torch.equal(fovea.torch.rope(x, torch.arange(3).to(kind)), expected)
    for wrong in (torch.rand(3), torch.ones(3, dtype=torch.bool), torch.ones(3, dtype=torch.complex64)):
        with pytest.raises(ValueError, match="^positions: found element type .*, needed an integer type$"):
            fovea.torch.rope(x, wrong)
    for far in (2**31, -(2**31) - 1, 2**32):
        with pytest.raises(ValueError, match="^positions: found a number of more than 32 bits$"):
            fovea.torch.rope(x, torch.tensor([0, far, 1]))
        # Whoever traced the call.
        with pytest.raises(ValueError, match="^positions: found a number of more than 32 bits$"):
            torch.compile(fovea.torch.rope, backend="eager", fullgraph=True)(x, torch.tensor([0, far, 1]))
    with pytest.raises(ValueError, match="^positions: found a number of more than 32 bits$"):
        fovea.torch.rope(x, torch.tensor([0, -1, 1]).view(torch.uint64))
    fovea.torch.rope(x, torch.tensor([2**31 - 1, -(2**31), 1]))


def test_frequencies_are_numbers():
    x, places = torch.randn(1, 2, 3, 8), torch.arange(3)
    table, _ = fovea.torch.rope_frequencies(8)
    expected = fovea.torch.rope(x, places)
    for same in (table, table.tolist(), tuple(table), torch.tensor(table)):
        assert torch.equal(fovea.torch.rope(x, places, frequencies=same), expected)
    assert fovea.torch.rope(x, places, frequencies=torch.tensor(table).bfloat16()).shape == x.shape
    for wrong in (torch.ones(4, dtype=torch.bool), torch.tensor(1.0), torch.ones(1, 4), np.ones(4, complex), "abcd"):
        with pytest.raises(ValueError, match="^frequencies: found .*, needed numbers of shape"):
            fovea.torch.rope(x, places, frequencies=wrong)
    with pytest.raises(RuntimeError, match="^rope: frequencies requires a gradient, but rope has none for it"):
        fovea.torch.rope(x, places, frequencies=torch.nn.Parameter(torch.tensor(table)))


@pytest.mark.parametrize("make", [np.asarray, torch.tensor], ids=["numpy", "torch"])
def test_frequencies_of_graphs_are_lists(make):
    """Arrays are tensors there, which no constant is made of."""
    x, places, table = torch.randn(1, 2, 3, 8), torch.arange(3), fovea.torch.rope_frequencies(8)[0]

    def turn(x, frequencies):
        return fovea.torch.rope(x, places, frequencies=frequencies)

    torch.compiler.reset()
    expected = fovea.torch.rope(x, places)
    compiled = torch.compile(turn, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, table.tolist()), expected)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"frequencies: found .*, needed a list .* pass frequencies.tolist\(\)"):
        compiled(x, make(table))
    assert torch.equal(torch.compile(turn, backend="aot_eager")(x, make(table)), expected)


def test_what_makes_trees_and_caches():
    c, w = torch.randn(1, 16, 3), [torch.randn(1, 2, 4 << level, 8) for level in range(2)]
    with pytest.raises(ValueError, match="^ratio: found '2', needed an integer of at least 2$"):
        fovea.torch.tree_build(c, ratio="2")
    tree = fovea.torch.tree_build(c)
    with pytest.raises(ValueError, match="^score: found int, needed a tensor$"):
        fovea.torch.tree_select(tree, {4: 1, 3: 1}, score=lambda rows, level: 1)
    for name, given in (("key", ([w[0], w[1].numpy()], w)), ("value", (w, [w[0], w[1].numpy()]))):
        with pytest.raises(ValueError, match=rf"^{name}_weights\[1\]: found ndarray, needed a tensor$"):
            fovea.torch.MultipoleCache(*given, group=4, heads=1)


def test_layouts_and_types_that_kernels_do_not_read():
    q = torch.randn(2, 4, 5, 8)
    wrong = {
        "a tensor of layout torch.sparse_coo, needed torch.strided": q.to_sparse(),
        "a tensor of layout torch._mkldnn, needed torch.strided": q.to_mkldnn(),
        "a nested tensor, needed one without: varlen takes": torch.nested.nested_tensor(
            [torch.randn(5, 4, 8), torch.randn(7, 4, 8)], layout=torch.jagged
        ).transpose(1, 2),
        "a quantized tensor of torch.qint8, needed one without": torch.quantize_per_tensor(q, 0.1, 0, torch.qint8),
        "element type complex64, needed bfloat16": q.to(torch.complex64),
    }  # fmt: skip
    for text, tensor in wrong.items():
        with pytest.raises(ValueError, match=f"^q: found {text}"):
            fovea.torch.dense(tensor, q, q)
        with pytest.raises(ValueError, match=f"^k: found {text}"):
            fovea.torch.dense(q, tensor, q)
        with pytest.raises(ValueError, match=f"^kv: found {text}"):
            fovea.torch.hca(q, tensor, q, interval=1)
