# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions and modules of fovea.torch in whole models, against the same in PyTorch."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch_models import Call

import fovea
import fovea.torch
from fovea import _own_calls

pytest.importorskip("torch_mlir")

Q, K, V = torch.randn(3, 2, 2, 16, 8, generator=torch.Generator().manual_seed(0))


def dense(*arguments, **options):
    return fovea.torch.dense(*arguments, **options)


def scores(q, k, v):
    slopes = fovea.capture(torch.tensor([0.5, 2.0]))
    return dense(q, k, v, score=lambda s, b, h, i, j: s * slopes[h] - abs(i - j), return_lse=True)


SEARCH = {"num_basis": 6, "window": 3, "delta": 0.1, "epsilon": 0.0}
SHORTER = torch.tensor([3, 9], dtype=torch.int32)


def far(q, k, v):
    weights = [q.new_full((1, 1, extent, 8), 1 / extent) for extent in (4, 8)]
    return fovea.torch.fast_multipole(q, k, v, weights, weights, group=4)


FUNCTIONS = {
    "dense": lambda q, k, v: dense(q * 2, k, v, causal=True, window=5) + 1,
    "bias": lambda q, k, v: dense(q, k, v, bias=q @ k.mT, sink=torch.ones(2, 2)),
    "lengths": lambda q, k, v: dense(q, k, v, lengths=torch.tensor([3, 9], dtype=torch.int32)),
    "narrow": lambda q, k, v: dense(q.bfloat16(), k.bfloat16(), v.bfloat16()).float(),
    "transposed": lambda q, k, v: dense(q.mT.contiguous().mT, k, v).transpose(1, 2).flatten(2),
    "scores": scores,
    "far": far,
    "vq": lambda q, k, v: fovea.torch.vq(q, k, v, k[0, :, :4], block=8),
    "rope": lambda q, k, v: fovea.torch.rope(q, torch.arange(16)[None, None] * 3),
    "twice": lambda q, k, v: dense(dense(q, k, v), k, dense(k, q, v, causal=True)),
    "conv": lambda q, k, v: fovea.torch.conv(q, k, v, **SEARCH),
    "conv of lengths": lambda q, k, v: fovea.torch.conv(q, k, v, **SEARCH, lengths=SHORTER),
    "conv of a mask": lambda q, k, v: fovea.torch.conv(q, k, v, **SEARCH, token_mask=torch.arange(16) < SHORTER[:, None]),
    "conv of bases": lambda q, k, v: fovea.torch.conv_apply(*fovea.torch.conv_recover(q, k, **SEARCH)[:2], v),
    "pool": lambda q, k, v: fovea.torch.pool(q, k, interval=4, overlap=2, position_bias=v[0, 0, :4]),
    "mask": lambda q, k, v: fovea.torch.fast_multipole(q, k, v, [], [], group=8, mask=q[:, 0, :, 0] > 0),
    "lengths of 64 bits": lambda q, k, v: fovea.torch.fast_multipole(q, k, v, [], [], group=8, lengths=SHORTER.long()),
    "quantized": lambda q, k, v: fovea.torch.vq(q, k, v, k[0, :, :4], block=8, lengths=SHORTER),
    "loss": lambda q, k, v: fovea.torch.commitment_loss(q, k, lengths=SHORTER),
}


def near(found, expected):
    found = found if isinstance(found, tuple) else (found,)
    for one, other in zip(found, torch.utils._pytree.tree_leaves(expected), strict=True):
        assert one.shape == tuple(other.shape)
        np.testing.assert_allclose(np.asarray(one), other.detach().numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    function = FUNCTIONS[name]
    program = fovea.import_torch(Call(function), Q, K, V)
    near(program(Q, K, V), function(Q, K, V))
    near(program(K, V, Q), function(K, V, Q))


@pytest.mark.parametrize("name", ["dense", "scores", "far"])
def test_gpu(name):
    """A kernel of a GPU calls no function."""
    program = fovea.import_torch(Call(FUNCTIONS[name]), Q, K, V, target="gpu-sim")
    near(program(Q, K, V), FUNCTIONS[name](Q, K, V))


def test_modules(tmp_path):
    """What replaces the attention of a model is a part of its program."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    fovea.torch.swap(model, fovea.torch.nn.FastMultipoleAttention, group=4, rank=2, max_length=32)
    path, (example, x) = tmp_path / "model.mlir", torch.randn(2, 3, 32, 32)
    program = fovea.import_torch(model, example, path=path)
    with torch.no_grad():
        near(program(x), model(x))
        near(fovea.load(path)(x), model(x))
    assert "attn.fast_multipole" in program.text


@pytest.mark.parametrize(
    "kind, options",
    [
        ("FastMultipoleAttention", {"group": 4, "rank": 2, "max_length": 100}),
        ("VQAttention", {"num_codes": 16, "block": 8, "relative": True}),
        # More bases than the shortest call has tokens.
        ("ConvBasisAttention", {"num_basis": 12, "window": 4, "delta": 0.1}),
    ],
)
def test_modules_of_any_length(kind, options):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = getattr(fovea.torch.nn, kind)(32, 4, batch_first=True, **options)

        def forward(self, x):
            mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            return self.attention(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]

    torch.manual_seed(0)
    # Of an example near the most tokens that are allowed, too.
    model = Layer().eval()
    program = fovea.import_torch(model, torch.randn(2, 90, 32), dynamic=(0, 1))
    for batch, length in ((2, 90), (1, 7), (3, 100)):
        x = torch.randn(batch, length, 32)
        with torch.no_grad():
            near(program(x), model(x))


def test_windows_of_columns_are_checked():
    """A kernel looks at so many entries of each."""
    layer = fovea.torch.nn.ConvBasisAttention(32, 4, batch_first=True, window=8, delta=0.1).eval()
    model = Call(lambda x: layer(x, x, x, attn_mask=x.new_ones(x.shape[1], x.shape[1]).triu(1) > 0, is_causal=True, need_weights=False)[0])
    program = fovea.import_torch(model, torch.randn(2, 20, 32), dynamic=(1,))
    x = torch.randn(2, 8, 32)
    with torch.no_grad():
        near(program(x), model(x))
    with pytest.raises(fovea.FoveaError, match=r"the program was traced for .*shape\[1\]"):
        program(x[:, :7])


def test_transformers():
    transformers = pytest.importorskip("transformers")
    fovea.torch.register_transformers()
    configuration = transformers.LlamaConfig(
        vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48
    )
    model = transformers.AutoModelForCausalLM.from_config(configuration, attn_implementation="fovea").eval()
    ids = torch.randint(3, 90, (2, 13), generator=torch.Generator().manual_seed(1))
    program = fovea.import_torch(model, ids, use_cache=False, dynamic=(0, 1))
    with torch.no_grad():
        for some in (ids, ids[:1, :5], ids.repeat(2, 9)):
            near(program(some), model(some, use_cache=False).logits)


def test_lengths_are_checked():
    program = fovea.import_torch(Call(lambda q, k, v, n: dense(q, k, v, lengths=n)), Q, K, V, torch.tensor([0, 16]))
    with pytest.raises(fovea.FoveaError, match="17"):
        program(Q, K, V, torch.tensor([0, 17]))


@pytest.mark.parametrize("dynamic", [(), {"input_0": (0, 2), "input_1": (0, 1)}])
def test_positions_are_checked(dynamic):
    """Of 64 bits: one that kernels cannot have is none that is near it."""
    model, far = Call(lambda q, at: fovea.torch.rope(q, at[:, None])), 2**31 - 3
    program = fovea.import_torch(model, Q, torch.arange(16).expand(2, 16), dynamic=dynamic)
    at = torch.arange(far, far + 16).expand(2, 16)
    near(program(Q, at - 13), model(Q, at - 13))
    near(program(Q, 12 - at), model(Q, 12 - at))
    for wrong in (at - 12, 11 - at, at + 2**32):
        with pytest.raises(fovea.FoveaError, match="positions: found a number of more than 32 bits"):
            program(Q, wrong)


#: In programs of any length, which the example does not reach.
LENGTHS = {
    **{name: FUNCTIONS[name] for name in ("dense", "narrow", "transposed", "scores", "vq", "twice")},
    "window": lambda q, k, v: dense(q, k, v, causal=True, window=20),
    "prefix": lambda q, k, v: dense(q, k, v, causal=True, prefix=20),
    "cross": lambda q, k, v: dense(q[:, :, 3:], k, v, causal=True, return_lse=True),
    "positions": lambda q, k, v: fovea.torch.rope(q, torch.arange(q.shape[2], dtype=torch.int32)[None, None]),
    "positions of 64 bits": lambda q, k, v: fovea.torch.rope(q, torch.arange(q.shape[2])[None, None]),
    "lengths of 64 bits": lambda q, k, v: dense(q, k, v, lengths=(q[:, 0, :, 0] > 0).sum(1)),
    "segments": lambda q, k, v: dense(q, k, v, causal=True, segments=((q[:, 0, :, 0] > 0).int(),) * 2),
    "far": far,
    "conv": lambda q, k, v: fovea.torch.conv(q, k, v, **SEARCH),
    "bases": lambda q, k, v: fovea.torch.conv_recover(q, k, **SEARCH),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_unknown_extents(name):
    function, generator = LENGTHS[name], torch.Generator().manual_seed(1)
    program = fovea.import_torch(Call(function), Q, K, V, dynamic=(0, 2))
    # Weights are for so many tokens.
    for length in (16, 5, 7, 32) if name == "far" else (16, 5, 33, 90):
        for batch in (2, 1, 3):
            given = torch.randn(3, batch, 2, length, 8, generator=generator)
            near(program(*given), function(*given))


def test_other_threads_compile_as_they_are_told_to(monkeypatch):
    """While kernels are looked for, which leave lengths open."""
    find, found = _own_calls._find_kernel, []
    with ThreadPoolExecutor(1) as other:

        def look(*arguments):
            found.append((fovea.shapes(), other.submit(fovea.shapes).result()))
            return find(*arguments)

        monkeypatch.setattr(_own_calls, "_find_kernel", look)
        fovea.import_torch(Call(lambda q, k, v: dense(q, k, v)), Q, K, V, dynamic=(2,))
    assert set(found) == {("dynamic", "auto")}
    assert fovea.shapes() == "auto"


def test_unknown_extents_are_checked():
    program = fovea.import_torch(Call(lambda q, k, v: dense(q, k, v)), Q, K, V, dynamic=(2,))
    with pytest.raises(fovea.FoveaError, match=r"the program was traced for .*shape\[2\]"):
        program(Q, K, V[:, :, :15])
    program = fovea.import_torch(Call(far), Q, K, V, dynamic=(2,))
    with pytest.raises(fovea.FoveaError, match="expected 32, but got 33"):
        program(*torch.randn(3, 2, 2, 33, 8))


REFUSED = {
    "found integers that are read before a kernel runs": (
        lambda q, k, v: fovea.torch.varlen(*(each[0].transpose(0, 1) for each in (q, k, v)), *[torch.tensor([0, 4, 16])] * 2), {}
    ),
    "with other extents than those of the example, lengths: found shape": (
        lambda q, k, v: dense(q, k, v, lengths=torch.tensor([3, 9], dtype=torch.int32)), {"dynamic": (0,)}
    ),
    "window: found an extent that is not known, needed a number": (
        lambda q, k, v: dense(q, k, v, causal=True, window=q.shape[2]), {"dynamic": (2,)}
    ),
    "found a call whose kernel depends on extents that are not known": (
        lambda q, k, v: fovea.torch.conv(q, k, v, **SEARCH, mask=fovea.torch.SlidingGroup(4)), {"dynamic": (2,)}
    ),
    "lengths: found tokens whose number is not known, needed a mask": (
        lambda q, k, v: fovea.torch.conv(q, k, v, **SEARCH, lengths=SHORTER), {"dynamic": (2,)}
    ),
    "with other extents than those of the example, k: found head width": (
        lambda q, k, v: dense(q, k, v), {"dynamic": {"input_0": (3,)}}
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_refused_is_named(reason):
    function, options = REFUSED[reason]
    with pytest.raises(fovea.FoveaError, match=r"fovea::\w+ is no part of a whole program here: .*" + reason):
        fovea.import_torch(Call(function), Q, K, V, **options)


def test_other_errors_stay():
    """Calls do not hide what torch-mlir does not import."""
    with pytest.raises(fovea.FoveaError, match=r"torch-mlir does not import Call: it has no linalg for aten.special_bessel_j0"):
        fovea.import_torch(Call(lambda q, k, v: torch.special.bessel_j0(dense(q, k, v))), Q, K, V)


def test_beside_what_torch_mlir_has_no_linalg_for():
    """Then its modules have the generic form."""
    x = torch.randn(1, 2, 6, 8)

    class Model(torch.nn.Module):
        def forward(self, x):
            return fovea.torch.dense(x, x, x, causal=True).sort(-1)[0]

    np.testing.assert_allclose(fovea.import_torch(Model(), x)(x), Model()(x), rtol=1e-5, atol=1e-6)
