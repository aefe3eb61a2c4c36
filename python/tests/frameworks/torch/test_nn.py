# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules have the conventions of PyTorch's: arguments, states, errors, training, compilers."""

import copy
import inspect
import pickle
import textwrap

import pytest
import torch
from nn_cases import OPTIONS, check_gradients, gradients, make, near, normal
from torch.utils.checkpoint import checkpoint

from fovea.torch import nn, tree_build

EXAMPLES = [*(module for module, _ in OPTIONS.values()), nn.VccEncoderLayer, nn.VccEncoder]


@pytest.mark.parametrize("module", EXAMPLES, ids=lambda module: module.__name__)
def test_example(module):
    """That of the documentation runs, and says the shapes."""
    text = inspect.getdoc(module)
    assert "Shapes: " in text
    example = textwrap.dedent(text[text.index("    import torch") :])
    assert example.count("\n") <= 11
    exec(example, {})


# ----------------------------------------------------------------------------
# As torch.nn.MultiheadAttention
# ----------------------------------------------------------------------------

WIDTHS = {"one": {}, "others": dict(kdim=12, vdim=20)}
ABSENT = torch.arange(11) >= torch.tensor([[11], [8]])
BIAS = normal(4, 7, 11, seed=5)
MASKS = {
    "none": {},
    "causal": dict(is_causal=True, attn_mask=torch.ones(7, 11, dtype=torch.bool).triu(5)),
    "some": dict(attn_mask=normal(7, 11, seed=4) > 1),
    "terms": dict(attn_mask=normal(7, 11, seed=4)),
    "terms of heads": dict(attn_mask=BIAS),
    "some of heads": dict(attn_mask=BIAS > 1),
    "padding": dict(key_padding_mask=ABSENT),
    "padding and some": dict(key_padding_mask=ABSENT, attn_mask=normal(7, 11, seed=4) > 1),
}


@pytest.mark.parametrize("layout", ["batch first", "tokens first", "one sequence"])
@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("name", MASKS)
def test_multihead_attention(name, widths, layout):
    """The same state, the same arguments, the same results and gradients."""
    torch.manual_seed(0)
    batch_first = layout == "batch first"
    module = nn.Attention(16, 2, batch_first=batch_first, **WIDTHS[widths])
    reference = torch.nn.MultiheadAttention(16, 2, batch_first=batch_first, dtype=torch.float64, **WIDTHS[widths])
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    reference.load_state_dict(module.state_dict())
    inputs = normal(2, 7, 16), normal(2, 11, module.kdim, seed=2), normal(2, 11, module.vdim, seed=3)
    options = dict(MASKS[name])
    if layout == "one sequence":
        inputs = [x[1] for x in inputs]
        options = {key: mask[1] if key == "key_padding_mask" else mask for key, mask in options.items()}
        if "heads" in name:
            options["attn_mask"] = options["attn_mask"][2:]
    elif not batch_first:
        inputs = [x.transpose(0, 1) for x in inputs]
    found, weights = module(*inputs, **options)
    assert weights is None
    # That of torch.nn counts from the first key where there are more keys than queries.
    options.pop("is_causal", None)
    doubled = {key: mask.double() if mask.is_floating_point() else mask for key, mask in options.items()}
    expected, _ = reference(*(x.double() for x in inputs), need_weights=False, **doubled)
    near(found, expected)
    check_gradients(gradients(module, found), gradients(reference, expected), 5e-5)


def test_begins_as_multihead_attention():
    torch.manual_seed(0)
    module = nn.Attention(64, 4)
    torch.manual_seed(0)
    reference = torch.nn.MultiheadAttention(64, 4)
    for (name, found), (other, expected) in zip(module.named_parameters(), reference.named_parameters(), strict=True):
        assert name == other and found.shape == expected.shape
        assert abs(found.std() - expected.std()) < 0.1 * expected.std() + 1e-6


@pytest.mark.parametrize("is_training", [False, True])
def test_in_an_encoder_layer(is_training):
    """torch.nn.TransformerEncoderLayer computes with it, also where it has a shortcut for its own."""
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    expected = copy.deepcopy(layer).double()
    module = nn.Attention(16, 2, batch_first=True)
    module.load_state_dict(layer.self_attn.state_dict())
    layer.self_attn = module
    calls = []
    module.register_forward_hook(lambda *_: calls.append(1))
    x = normal(2, 11, 16)
    for each in (layer, expected):
        each.train(is_training)
    with torch.set_grad_enabled(is_training):
        found = layer(x, src_key_padding_mask=ABSENT)
        assert calls
        near(found[~ABSENT], expected(x.double(), src_key_padding_mask=ABSENT)[~ABSENT])


# ----------------------------------------------------------------------------
# States
# ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPTIONS)
def test_state(name):
    """A state dictionary, a copy and a pickle have all that a module has learned."""
    module, x = make(name).train(), normal(2, 29, 16)
    module(x, is_causal=True)
    module.eval()
    expected, _ = module(x, is_causal=True)
    other = make(name, seed=5)
    assert not torch.equal(other.eval()(x, is_causal=True)[0], expected)
    other.load_state_dict(module.state_dict())
    for each in (other, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(each.eval()(x, is_causal=True)[0], expected)


@pytest.mark.parametrize("shape", [(0, 9, 16), (2, 0, 16)])
@pytest.mark.parametrize("name", OPTIONS)
def test_nothing(name, shape):
    """No sequences, or sequences of no tokens, as torch.nn.MultiheadAttention takes them; the codebook stays."""
    module = make(name).train()
    before = copy.deepcopy(module.state_dict())
    x = normal(*shape).requires_grad_()
    out, _ = module(x, is_causal=True)
    out.sum().backward()
    assert out.shape == x.grad.shape == shape
    assert all(not each.grad.any() for each in module.parameters() if each.grad is not None)
    assert all(torch.equal(found, before[name]) for name, found in module.state_dict().items())


@pytest.mark.parametrize("name", OPTIONS)
def test_script_is_refused(name):
    module = make(name)
    with pytest.raises(ValueError, match=f"torch.jit.script does not compile {type(module).__name__}: needed torch.export"):
        torch.jit.script(torch.nn.Sequential(module))


TRANSFORMS = {
    "export": lambda model, x: torch.export.export(model, (x,)).module()(x),
    "grad": lambda model, x: torch.func.grad(lambda x: model(x).sum())(x),
    "vmap": lambda model, x: torch.vmap(model)(x[:, None])[:, 0],
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("selection", ["exponential", "heads"])
def test_selection_under_transforms(selection, transform):
    """By heads it is a function of Python."""
    model = nn.VccEncoder(nn.VccEncoderLayer(16, 2, budgets={1: 2}, selection=selection), 1, num_vip=3, ratio=4)
    x = normal(2, 19, 16)
    if selection == "exponential":
        assert TRANSFORMS[transform](model, x).shape == x.shape
        return
    with pytest.raises(ValueError, match="score: found a function, which torch.export, torch.func and torch.vmap do not trace"):
        TRANSFORMS[transform](model, x)


def test_state_names():
    names = lambda name: [key for key in make(name).state_dict() if key.startswith("pattern")]  # noqa: E731
    assert names("dense") == ["pattern.sinks"]
    assert names("multipole") == [f"pattern.{kind}_weights.{level}" for kind in ("key", "value") for level in range(3)]
    assert names("quantized") == ["pattern.codebook", "pattern.sums", "pattern.counts"]
    assert names("conv") == []


def test_repr():
    text = repr(nn.Attention(16, 4, num_key_heads=2, kdim=8, bias=False, batch_first=True, window=3, sinks=True))
    assert "16, num_heads=4, num_key_heads=2, kdim=8, vdim=16, bias=False, batch_first=True" in text
    assert "window=3, sinks=True" in text
    assert "group=4, rank=2, max_length=64" in repr(make("multipole"))
    assert "num_codes=8, block=4, memory=1, rate=0.99, normalize=False" in repr(make("quantized", normalize=False))
    assert "num_basis=6, window=2, delta=0.1, epsilon=0.0" in repr(make("conv"))
    layer = nn.VccEncoderLayer(16, 2, budgets={1: 2})
    assert "budgets={1: 2}, selection='heads', norm_first=True" in repr(layer)
    assert "num_vip=3, ratio=4, levels=1" in repr(nn.VccEncoder(layer, 1, num_vip=3, ratio=4))


# ----------------------------------------------------------------------------
# Training
# ----------------------------------------------------------------------------


def train(model, parameters, loss_of, steps=60):
    optimizer = torch.optim.Adam(parameters, 3e-3)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", OPTIONS)
def test_learns_to_copy(name):
    """What stood three tokens before."""
    torch.manual_seed(0)
    module = make(name).train()
    tokens, places = torch.nn.Embedding(7, 16), torch.nn.Embedding(40, 16)
    ids = torch.randint(7, (8, 40))
    model = torch.nn.ModuleList([module, tokens, places])

    def loss():
        x = tokens(ids) + places.weight
        out = module(x, is_causal=True)[0] @ tokens.weight.T
        loss = torch.nn.functional.cross_entropy(out[:, 3:].flatten(0, 1), ids[:, :-3].flatten())
        return loss + 1e-4 * nn.commitment_loss(module) if name == "quantized" else loss

    losses = train(model, model.parameters(), loss)
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("length", [5, 29, 64])
def test_levels_that_no_length_reaches_have_gradients(length):
    """Of zeros: who gathers gradients of several processes waits for all parameters."""
    module = make("multipole")
    weights = [*module.pattern.key_weights, *module.pattern.value_weights]
    module(normal(2, length, 16))[0].square().sum().backward()
    levels = module.pattern._levels(length)
    for level, weight in zip([0, 1, 2] * 2, weights, strict=True):
        assert weight.grad.shape == weight.shape and bool(weight.grad.any()) == (level < levels)
    module.requires_grad_(False)
    assert not module(normal(2, length, 16))[0].requires_grad


def test_vcc_learns():
    torch.manual_seed(0)
    encoder = nn.VccEncoder(nn.VccEncoderLayer(16, 2, 32, budgets={1: 2}), 2, num_vip=4, ratio=4)
    x, target = normal(4, 40, 16), normal(4, 40, 16, seed=2)
    losses = train(encoder, encoder.parameters(), lambda: (encoder(x) - target).square().mean())
    assert losses[-1] < 0.8 * losses[0]


def test_codewords_rest_where_no_key_comes():
    module = make("quantized", num_codes=64).train()
    before = module.pattern.codebook.clone()
    with torch.no_grad():
        for seed in range(1200):
            module(normal(1, 4, 16, seed=seed % 3), is_causal=True)
    pattern = module.pattern
    is_resting = pattern.counts < 1e-3
    assert is_resting.any() and (~is_resting).any()
    assert torch.equal(pattern.codebook[is_resting].isfinite(), torch.ones_like(before[is_resting], dtype=torch.bool))
    near(pattern.codebook[is_resting], before[is_resting].double(), 1e-3)


def test_evaluation_leaves_the_codebook():
    module = make("quantized").eval()
    before = copy.deepcopy(module.state_dict())
    module(normal(2, 9, 16), is_causal=True)
    assert all(torch.equal(found, before[name]) for name, found in module.state_dict().items())


def train_in(call, steps=2):
    """Gradients and codebooks of steps of a module that reads the same tokens, by `call(module, x)`."""
    module, x = make("quantized", rate=0.5).train(), normal(2, 29, 16)
    found = []
    for _ in range(steps):
        out = call(module, x.requires_grad_())
        found.append((gradients(module, out), module.pattern.codebook.clone()))
    return found


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_repeats_a_call_with_its_codebook(use_reentrant):
    """A call moves the codebook once, and its gradient is that of the codebook that it read."""

    def repeat(module, x):
        return checkpoint(lambda x: module(x, is_causal=True)[0], x, use_reentrant=use_reentrant)

    expected = train_in(lambda module, x: module(x, is_causal=True)[0])
    for (one, moved), (other, there) in zip(train_in(repeat), expected, strict=True):
        check_gradients(one, other, 0)
        assert torch.equal(moved, there)


def test_checkpoint_with_the_commitment_loss():
    found = []
    for repeat in (False, True):
        module, x = make("quantized").train(), normal(2, 29, 16).requires_grad_()

        def call(x, module=module):
            return module(x, is_causal=True)[0]

        out = checkpoint(call, x, use_reentrant=False) if repeat else call(x)
        (out.sum() + nn.commitment_loss(module)).backward()
        found.append(x.grad)
    assert torch.equal(*found)
    checkpoint(call, x, use_reentrant=True)
    with pytest.raises(ValueError, match="^model: found a last call without gradients.*needed use_reentrant=False"):
        nn.commitment_loss(module)
    with torch.no_grad():
        assert nn.commitment_loss(module) > 0


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_of_several_calls_is_refused(use_reentrant):
    module = make("quantized").train()
    x, y = normal(2, 29, 16).requires_grad_(), normal(2, 29, 16, seed=2).requires_grad_()
    first, _ = (checkpoint(lambda x: module(x, is_causal=True)[0], each, use_reentrant=use_reentrant) for each in (x, y))
    with pytest.raises(RuntimeError, match="^quantized attention: found a call that torch.utils.checkpoint computes again after"):
        first.sum().backward()


def test_checkpoint_of_a_compiled_call_is_refused():
    torch._dynamo.reset()
    module = torch.compile(make("quantized").train(), backend="aot_eager")
    out = checkpoint(lambda x: module(x, is_causal=True)[0], normal(2, 29, 16).requires_grad_(), use_reentrant=False)
    with pytest.raises(RuntimeError, match="^quantized attention: found a compiled call that torch.utils.checkpoint"):
        out.sum().backward()


KEYS = (normal(2, 9, 16), normal(1, 9, 16, seed=2))


def follow(rank, world, folder):
    """The codebook of one of several processes, after a call for its part of a batch, and one where the second has no tokens."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
    module = make("quantized", rate=0.5, synchronize=True).train()
    for tokens in KEYS:
        module(tokens[rank : rank + 1], is_causal=True)
    torch.save(module.state_dict(), folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def test_processes_follow_the_keys_of_all(tmp_path):
    torch.multiprocessing.spawn(follow, (2, tmp_path), 2)
    one, other = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    module = make("quantized", rate=0.5).train()
    for tokens in KEYS:
        parts = [copy.deepcopy(module) for _ in range(2)]
        for part, rows in zip(parts, (tokens[:1], tokens[1:])):
            if rows.numel() > 0:
                part(rows, is_causal=True)
            else:
                part.pattern.sums *= 0.5
                part.pattern.counts *= 0.5
        sums, counts = (sum(getattr(part.pattern, name) for part in parts) / 2 for name in ("sums", "counts"))
        for name, each in (("sums", sums), ("counts", counts), ("codebook", sums / counts[..., None])):
            getattr(module.pattern, name).copy_(each)
    for name, each in module.state_dict().items():
        assert torch.equal(one[name], other[name])
        near(one[name], each.double(), 1e-6)


# ----------------------------------------------------------------------------
# Types, compilers
# ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPTIONS)
def test_types(name):
    for type in (torch.bfloat16, torch.float64):
        module = make(name, dtype=type)
        out, _ = module(normal(2, 11, 16, dtype=type), is_causal=True)
        out.float().square().sum().backward()
        assert out.dtype == type and module.in_proj_weight.grad.dtype == type


@pytest.mark.parametrize("name", OPTIONS)
def test_type_changes(name):
    """A module that is made narrower, as those of a model are, is one that was made so, and what training keeps stays wide."""
    for type in (torch.bfloat16, torch.float64):
        module, expected = make(name).to(type), make(name, dtype=type)
        expected.load_state_dict(module.state_dict())
        assert [each.dtype for each in module.state_dict().values()] == [each.dtype for each in expected.state_dict().values()]
        x = normal(2, 11, 16, dtype=type)
        assert torch.equal(module(x, is_causal=True)[0], expected(x, is_causal=True)[0])


def test_sums_are_not_rounded():
    pattern = make("quantized").pattern
    pattern.sums.add_(1e-4)
    sums = pattern.sums.clone()
    assert torch.equal(pattern.to(torch.bfloat16).sums, sums) and pattern.codebook.dtype == torch.bfloat16
    assert pattern.double().sums.dtype == torch.float64 and pattern.to("meta").sums.is_meta


@pytest.mark.parametrize("name", OPTIONS)
def test_compile(name):
    """One graph, forward and backward."""
    module, x = make(name), normal(2, 29, 16)
    module.train(name != "quantized")
    out, _ = module(x, is_causal=True)
    expected = gradients(module, out)
    torch._dynamo.reset()
    found, _ = torch.compile(module, backend="aot_eager", fullgraph=True)(x, is_causal=True)
    near(found, out.double())
    check_gradients(gradients(module, found), expected)


class Causal(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x, is_causal=True)[0]


PROGRAMS = {
    "export": lambda model, x: torch.export.export(model, (x,)).module(),
    "strict export": lambda model, x: torch.export.export(model, (x,), strict=True).module(),
    "trace": torch.jit.trace,
}


@pytest.mark.parametrize("write", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::torch.jit.TracerWarning")
def test_programs_have_gradients(name, write):
    module, x = Causal(make(name)), normal(2, 29, 16)
    module.train(name != "quantized")
    torch._dynamo.reset()
    program = write(module, x)
    expected = gradients(module, module(x))
    found = gradients(program, program(x))
    # Levels beyond these tokens have zeros in the module.
    assert all(name in found or not each.any() for name, each in expected.items())
    check_gradients(found, {name: each for name, each in expected.items() if name in found})


def test_programs_for_inference_run_where_gradients_are_on():
    """They have no `detach` of the keys that a codebook follows."""
    module, x = Causal(make("quantized")).train(), normal(2, 29, 16)
    program = torch.export.export(copy.deepcopy(module), (x,)).run_decompositions().module()
    for _ in range(2):
        near(program(x).detach(), module(x).double())
    near(program.get_buffer("module.pattern.codebook").detach(), module.module.pattern.codebook.double())


def test_compile_in_training():
    """The codebook moves as it does without a compiler."""
    module, x = make("quantized").train(), normal(2, 29, 16)
    other = copy.deepcopy(module)
    torch._dynamo.reset()
    compiled = torch.compile(other, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        expected, found = module(x, is_causal=True)[0], compiled(x, is_causal=True)[0]
        near(found, expected.double())
        (found.sum() + nn.commitment_loss(other)).backward()
    near(other.pattern.codebook, module.pattern.codebook.double())


def test_compile_vcc():
    layer = nn.VccEncoderLayer(16, 2, 24, budgets={1: 2}, selection="exponential")
    encoder, x = nn.VccEncoder(layer, 2, num_vip=4, ratio=4), normal(2, 29, 16)
    expected = encoder(x)
    torch._dynamo.reset()
    found = torch.compile(encoder, backend="aot_eager", fullgraph=True)(x)
    near(found, expected.double())
    check_gradients(gradients(encoder, found), gradients(encoder, expected))


# ----------------------------------------------------------------------------
# Errors
# ----------------------------------------------------------------------------

CONSTRUCTORS = [
    (lambda: nn.Attention(16, 3), "embed_dim: found 16, needed a multiple of the 3 heads"),
    (lambda: nn.Attention(16, 4, num_key_heads=3), "num_key_heads: found 3, needed a divisor of the 4 heads"),
    (lambda: nn.Attention(0, 1), "embed_dim: found 0, needed an integer of at least 1"),
    (lambda: nn.Attention(16, 2, 0.1), "dropout: found 0.1, needed 0"),
    (lambda: nn.Attention(16, 2, window=0), "window: found 0, needed an integer of at least 1"),
    (lambda: make("multipole", rank=3), "rank: found 3, needed a divisor of the group, 4"),
    (lambda: make("multipole", max_length=0), "max_length: found 0, needed an integer of at least 1"),
    (lambda: make("multipole", max_length=float("inf")), "max_length: found inf, needed an integer of at least 1"),
    (lambda: make("multipole", group="64"), "group: found '64', needed an integer of at least 1"),
    (lambda: make("conv", window=2.5), "window: found 2.5, needed an integer of at least 1"),
    (lambda: make("quantized", num_codes=0), "num_codes: found 0, needed an integer of at least 1"),
    (lambda: make("quantized", rate=1.5), r"rate: found 1.5, needed a number of \[0,1\]"),
    (lambda: nn.VccEncoderLayer(16, 2, budgets={1: 2}, selection="best"), "selection: found 'best'"),
    (lambda: nn.VccEncoderLayer(16, 2, budgets={1: 2}, activation="tan"), "activation: found 'tan'"),
    (lambda: nn.VccEncoder(nn.VccEncoderLayer(16, 2, budgets={}), 0, num_vip=1), "num_layers: found 0"),
    (lambda: nn.commitment_loss(make("dense")), "model: found no quantized attention"),
    (lambda: nn.commitment_loss(make("quantized")), "model: found some that was not called in training"),
]


@pytest.mark.parametrize("number", range(len(CONSTRUCTORS)))
def test_bad_modules(number):
    make_module, message = CONSTRUCTORS[number]
    with pytest.raises(ValueError, match=message):
        make_module()


X = normal(2, 11, 16)
CALLS = [
    ("dense", dict(need_weights=True), "need_weights: found True, needed False"),
    ("dense", dict(query=normal(2, 11, 15)), r"query: found shape \(2, 11, 15\), needed \[B,N,F\] with F = 16"),
    ("dense", dict(query=normal(16)), r"query: found shape \(16,\), needed \[B,N,F\] with F = 16"),
    ("dense", dict(key=normal(11, 16)), r"key: found shape \(11, 16\), needed \[B,N,F\]"),
    ("dense", dict(value=normal(2, 12, 16)), r"value: found shape \(2, 12, 16\), needed the tokens of key"),
    ("dense", dict(attn_mask=normal(5, 5)), r"attn_mask: found shape \(5, 5\), needed \(11, 11\) or \(4, 11, 11\)"),
    ("dense", dict(key_padding_mask=ABSENT[:, 1:]), r"key_padding_mask: found torch.bool of shape \(2, 10\)"),
    ("dense", dict(key_padding_mask=ABSENT.long()), "key_padding_mask: found torch.int64"),
    ("dense", dict(key_padding_mask=normal(2, 11)), "key_padding_mask: found numbers other than 0 and -inf"),
    ("multipole", dict(attn_mask=normal(11, 11)), "attn_mask: .* needed None in fast multipole attention"),
    ("multipole", dict(key=normal(2, 5, 16), value=normal(2, 5, 16)), "key: found 5 keys, needed as many as queries"),
    ("multipole", dict(query=normal(1, 65, 16)), "query: found 65 tokens, needed at most max_length, 64, in fast"),
    ("quantized", dict(attn_mask=normal(11, 11)), "attn_mask: .* needed None in quantized attention"),
    ("conv", dict(is_causal=False), "is_causal: found False, needed True in attention by convolutions"),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_bad_calls(number):
    name, arguments, message = CALLS[number]
    with pytest.raises(ValueError, match=message):
        make(name)(**{**dict(query=X), **arguments})


def test_bad_sequences_of_encoders():
    encoder = nn.VccEncoder(nn.VccEncoderLayer(16, 2, 24, budgets={1: 1}), 1, num_vip=4, ratio=4)
    with pytest.raises(ValueError, match=r"src: found shape \(2, 4, 16\), needed \[B,N,F\] with N > num_vip = 4"):
        encoder(X[:, :4])
    with pytest.raises(ValueError, match="src_key_padding_mask: found torch.int64"):
        encoder(X, ABSENT.long())
    with pytest.raises(ValueError, match="budgets"):
        nn.VccEncoderLayer(16, 2, 24, budgets={1: 9})(X[:, :3], tree_build(X[:, 3:].contiguous(), ratio=4, levels=1))
