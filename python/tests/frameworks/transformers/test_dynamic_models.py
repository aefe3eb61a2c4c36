# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole models of any batch and length: one program, and what it computes."""

import math
import re

import numpy as np
import pytest
import torch
import transformers
from imported import find_raised
from small_models import make

import fovea
from fovea._import_tool import main

pytest.importorskip("torch_mlir")

BOUND = 1e-5
#: Batch and length, for the one program; examples have another.
SHAPES = [(1, 1), (2, 13), (3, 31), (1, 64)]


def near(found, expected):
    found = found[0] if isinstance(found, tuple) else found
    assert found.shape == expected.shape and found.dtype == expected.dtype
    assert np.abs(found - expected).max() <= BOUND * np.abs(expected).max()


def tokens(shape):
    return torch.randint(3, 90, shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["bert", "modernbert", "gpt2", "llama", "mistral", "qwen3", "gemma2", "gpt_oss", "deepseek_v3"])
def test_models(name, attention, tmp_path):
    if name in ("gemma2", "gpt_oss") and attention == "sdpa":
        pytest.skip("has no such attention")
    model = make(name)
    model.set_attn_implementation(attention)
    options = {} if "bert" in name else {"use_cache": False}
    path = tmp_path / "model.mlir"
    program = fovea.import_torch(model, tokens((2, 9)), **options, dynamic=(0, 1), path=path)
    raised = find_raised(program.text, tmp_path)
    assert len(raised) == 2
    # All masks are of positions.
    assert not any("bias(" in each for each in raised)
    assert all(("#attn.mask<causal" in each) == ("bert" not in name) for each in raised)
    assert ("#attn.mask<window = 4>" in raised[0]) == (name == "modernbert")
    loaded = fovea.load(path)
    for shape in SHAPES:
        ids = tokens(shape)
        with torch.no_grad():
            expected = model(ids, **options).logits.numpy()
        near(program(ids), expected)
        near(loaded(ids), expected)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_backend_of_torch_compile(name):
    """One graph for all shapes; its attention is Fovea's."""
    model = make(name)
    model.set_attn_implementation("sdpa")
    options = {} if name == "bert" else {"use_cache": False}
    graphs = []

    def rest(graph, examples):
        graphs.append(sum("attend" in str(node.target) for node in graph.graph.nodes))
        return graph.forward

    compiled = torch.compile(model, backend="fovea", dynamic=True, options={"rest": rest})
    for shape in (2, 13), (3, 29), (4, 64):
        ids = tokens(shape)
        with torch.no_grad():
            near(compiled(ids, **options).logits.numpy(), model(ids, **options).logits.numpy())
    assert graphs == [2]


@pytest.mark.parametrize("name", ["bert", "modernbert", "llama", "mistral"])
def test_padding(name, tmp_path):
    model = make(name)
    model.set_attn_implementation("sdpa")
    options = {} if "bert" in name else {"use_cache": False}
    program = fovea.import_torch(
        model, input_ids=tokens((2, 9)), attention_mask=torch.ones(2, 9, dtype=torch.long),
        dynamic={"input_ids": (0, 1), "attention_mask": (0, 1)}, **options,
    )  # fmt: skip
    raised = find_raised(program.text, tmp_path)
    # A number for each key, not for each pair.
    assert len(raised) == 2 and all("tensor<?x1x1x?xf32>" in each for each in raised)
    assert all(("#attn.mask<causal" in each) == ("bert" not in name) for each in raised)
    assert ("#attn.mask<window = 4>" in raised[0]) == (name == "modernbert")
    for batch, length in SHAPES:
        ids = tokens((batch, length))
        mask = (torch.arange(length) < torch.randint(1, length + 1, (batch, 1))).long()
        with torch.no_grad():
            near(program(ids, mask), model(ids, attention_mask=mask, **options).logits.numpy())
    for other in (2, 12), (1, 13), (2, 1):
        with pytest.raises(fovea.FoveaError, match=r"index 0 is out of bounds|for attention_mask.shape\[1\] == input_ids.shape\[1\]"):
            program(tokens((2, 13)), torch.ones(other, dtype=torch.long))


_SIZES = dict(vocab_size=97, hidden_size=32, num_hidden_layers=2)
_HEADS = dict(**_SIZES, num_attention_heads=4, intermediate_size=48)

#: Models whose shapes follow from extents in other ways, and which lengths their examples allow.
OTHERS = {
    # Spans of positions are numbers of tensors, less than a limit.
    "deberta": (
        lambda: transformers.DebertaConfig(
            **_HEADS, relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=20, max_position_embeddings=64
        ),
        (1, 2, 13, 31),
    ),
    # A table of biases is cut to the length.
    "mpt": (lambda: transformers.MptConfig(vocab_size=97, d_model=32, n_heads=4, n_layers=2, max_seq_len=64), (1, 2, 13, 64)),
    # Rotary embedding of a quarter of the columns.
    "gpt_neox": (lambda: transformers.GPTNeoXConfig(**_HEADS, rotary_pct=0.25), (1, 2, 13, 31)),
    # Chunks of tokens, the last of which is filled up.
    "mamba2": (
        lambda: transformers.Mamba2Config(**_SIZES, state_size=8, num_heads=8, head_dim=8, n_groups=1, chunk_size=4),
        (6, 7, 13, 31),
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_models(name):
    configuration, lengths = OTHERS[name]
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(configuration()).eval()
    options = {} if name == "deberta" else {"use_cache": False}
    program = fovea.import_torch(model, tokens((2, 9)), **options, dynamic=(0, 1))
    for length in lengths:
        for batch in 1, 3:
            ids = tokens((batch, length))
            with torch.no_grad():
                near(program(ids), model(ids, **options)[0].numpy())


@pytest.mark.parametrize(("name", "length"), [("mamba2", 4), ("mamba2", 8), ("mpt", 65)])
def test_other_lengths(name, length):
    """What the example's length says of chunks and tables is checked."""
    model = transformers.AutoModel.from_config(OTHERS[name][0]()).eval()
    program = fovea.import_torch(model, tokens((2, 9)), use_cache=False, dynamic=(0, 1))
    with pytest.raises(fovea.FoveaError, match="the program was traced for|mismatched size"):
        program(tokens((2, length)))


def test_loops_of_python():
    model = transformers.AutoModel.from_config(transformers.MambaConfig(**_SIZES, state_size=8)).eval()
    place = r"the model fixes input_ids.shape\[1\] to 9, at .*modeling_mamba.py:\d+: leave dimension 1 out of dynamic"
    with pytest.raises(fovea.FoveaError, match=place):
        fovea.import_torch(model, tokens((2, 9)), use_cache=False, dynamic=(0, 1))
    program = fovea.import_torch(model, tokens((2, 9)), use_cache=False, dynamic=(0,))
    with torch.no_grad():
        near(program(tokens((3, 9))), model(tokens((3, 9)), use_cache=False)[0].numpy())


def test_packed_sequences():
    """Positions that begin again hide what is before; they are no count."""
    model = make("llama")
    program = fovea.import_torch(
        model, input_ids=tokens((2, 9)), position_ids=torch.arange(9).expand(2, 9).contiguous(), use_cache=False, dynamic=(0, 1)
    )
    for first in 1, 5, 12:
        ids, positions = tokens((2, 13)), torch.cat([torch.arange(first), torch.arange(13 - first)]).expand(2, 13)
        with torch.no_grad():
            expected = model(ids, position_ids=positions, use_cache=False).logits.numpy()
            whole = model(ids, use_cache=False).logits.numpy()
        near(program(ids, positions), expected)
        assert np.abs(whole - expected).max() > 1e-3


class Sums(torch.nn.Module):
    def forward(self, x):
        return x.cumsum(-1), x.cumsum(0)


def test_cumulative_sums():
    program = fovea.import_torch(Sums(), torch.randn(3, 4), dynamic=(0, 1))
    for shape in (1, 1), (5, 33), (2, 300):
        x = torch.randn(shape)
        for found, expected in zip(program(x), Sums()(x)):
            assert np.abs(found - expected.numpy()).max() <= 1e-5 * expected.abs().max()


class Reshapes(torch.nn.Module):
    def forward(self, x):
        B, N, C = x.shape
        heads = x.view(B, N, 2, C // 2).transpose(1, 2).reshape(B * 2, N, C // 2)
        return heads.reshape(B, 2, N, 1, C // 2).permute(0, 2, 1, 3, 4).reshape(B * N, C), x.reshape(-1), x.reshape(N * B, 3, -1)


def test_reshapes():
    program = fovea.import_torch(Reshapes(), torch.randn(2, 3, 12), dynamic=(0, 1))
    for shape in (1, 1, 12), (3, 2, 12), (5, 7, 12):
        x = torch.randn(shape)
        for found, expected in zip(program(x), Reshapes()(x)):
            assert np.array_equal(found, expected.numpy())


class Extents(torch.nn.Module):
    """The greater and the lesser of two, a remainder, and extents that follow from others."""

    def forward(self, x):
        N = x.shape[1]
        filled = x.new_ones(max(N, 5), min(N, 7) + 1)
        padded = torch.nn.functional.pad(x, (0, 0, 0, (4 - N % 4) % 4))
        flat = torch.nn.functional.pad(x, (0, 0, 0, N)).reshape(-1, 12)
        return filled, padded.reshape(x.shape[0], -1, 4, 12).sum(2), flat.reshape(x.shape[0], -1, 3, 4)


def test_arithmetic_of_extents():
    program = fovea.import_torch(Extents(), torch.randn(2, 9, 12), dynamic=(0, 1))
    for shape in (1, 1, 12), (3, 4, 12), (2, 7, 12), (5, 10, 12):
        x = torch.randn(shape)
        for found, expected in zip(program(x), Extents()(x), strict=True):
            np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6, atol=1e-6)


class Branches(torch.nn.Module):
    def __init__(self, condition):
        super().__init__()
        self.condition = condition

    def forward(self, x):
        return x * 2 if self.condition(*x.shape) else x


CONDITIONS = {
    "least": lambda a, b: a > 5,
    "most": lambda a, b: a <= 7 or b > 10,
    "remainder": lambda a, b: a % 3 == 0,
    "quotient": lambda a, b: (a + 1) // 2 == 5,
    "both": lambda a, b: a * b > 30,
    "equal": lambda a, b: a == b,
    "less": lambda a, b: a * a - 2 * b < 40,
    "float": lambda a, b: a / 2 > b,
    "ceiling": lambda a, b: math.ceil(a / 2) != 4,
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_branches_of_python(name):
    """A call whose extents take another branch is one error, and never the branch of the example."""
    condition, refused = CONDITIONS[name], 0
    for example in (9, 4), (6, 6):
        program = fovea.import_torch(Branches(condition), torch.ones(example), dynamic=(0, 1))
        for shape in (1, 1), (4, 1), (2, 4), (6, 6), (7, 7), (8, 2), (9, 5), (12, 3), (2, 30), (5, 9):
            try:
                found = program(np.ones(shape, np.float32))
            except fovea.FoveaError as error:
                assert re.search(r"the program was traced for .*x.shape", str(error))
                refused += 1
                continue
            assert found[0, 0] == (2 if condition(*shape) else 1)
    assert 0 < refused < 20
    with pytest.raises(fovea.FoveaError, match=r"the program was traced for x.shape\[0\] >= 1"):
        program(np.ones((0, 3), np.float32))


class Adds(torch.nn.Module):
    def forward(self, x, y):
        return x + y


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_extents_that_differ(target):
    program = fovea.import_torch(Adds(), torch.randn(4), torch.randn(4), dynamic=(0,), target=target)
    assert np.array_equal(program(np.ones(7, np.float32), np.ones(7, np.float32)), np.full(7, 2, np.float32))
    for sizes in (7, 6), (6, 7), (1, 7), (7, 1):
        with pytest.raises(fovea.FoveaError, match=r"traced for y.shape\[0\] == x.shape\[0\]"):
            program(*(np.ones(size, np.float32) for size in sizes))


class Pairs(torch.nn.Module):
    def forward(self, x, pair, *rest, scale=None):
        return x + pair[0] + pair[1] + rest[0] + scale["by"]


def test_names_of_inputs():
    """Those of the arguments of `forward`."""
    x = [torch.randn(4, 3) for _ in range(5)]
    names = ("x", "pair_0", "pair_1", "input_2", "scale_by")
    program = fovea.import_torch(Pairs(), x[0], (x[1], x[2]), x[3], scale={"by": x[4]}, dynamic=dict.fromkeys(names, (0,)))
    assert program.names == names
    near(program(**{name: np.concatenate([each] * 2) for name, each in zip(names, x)}), torch.cat([sum(x)] * 2).numpy())


def test_what_is_refused():
    model, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    with pytest.raises(ValueError, match="dynamic: found 'x', needed names of inputs: input$"):
        fovea.import_torch(model, x, dynamic={"x": (0,)})
    with pytest.raises(ValueError, match=r"dynamic: found \(2,\) for input, needed dimensions from 0 to 1"):
        fovea.import_torch(model, x, dynamic={"input": (2,)})
    with pytest.raises(ValueError, match="dynamic: found 2, needed dimensions that an input has: from 0 to 1"):
        fovea.import_torch(model, x, dynamic=(2,))
    with pytest.raises(ValueError, match="dynamic: found True, needed dimensions of all inputs"):
        fovea.import_torch(model, x, dynamic=True)
    with pytest.raises(ValueError, match="input: found extent 1 of dimension 0, which is dynamic: needed an example of 2 at least"):
        fovea.import_torch(model, x[:1], dynamic=(0,))
    # The number of features is that of the weights.
    with pytest.raises(fovea.FoveaError, match=r"Linear: the model fixes input.shape\[1\] to 3: leave dimension 1 out of dynamic"):
        fovea.import_torch(model, x, dynamic=(0, 1))


def test_command(tmp_path, capsys):
    script, output = tmp_path / "script.py", tmp_path / "model.mlir"
    script.write_text("import torch\n\ndef make():\n    return torch.nn.Softmax(-1), (torch.ones(4, 3),)\n")
    assert main([f"{script}:make", "-o", str(output), "--dynamic", "0,1"]) == 0
    x = torch.randn(5, 9)
    assert np.allclose(fovea.load(output)(x), x.softmax(-1), atol=1e-6)
    for given, reason in ("0,a", "found '0,a'"), ("-1", "found '-1'"):
        assert main([f"{script}:make", "-o", str(output), f"--dynamic={given}"]) == 1
        assert reason in capsys.readouterr().err
