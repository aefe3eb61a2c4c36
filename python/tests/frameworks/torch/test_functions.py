# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What holds of every function on tensors."""

import contextlib
import functools
import io

import ml_dtypes
import numpy as np
import pytest
import torch
from conftest import OF_NO_FRAMEWORK, compare_with_package
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode
from torch_cases import CASES, Case

import fovea
import fovea.torch
from fovea._declarations import FUNCTIONS

EVERY = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
# Those of results in their own type are rounded twice: here and there.
BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-13}


def results(found):
    return [each for each in (found if isinstance(found, tuple) else (found,)) if isinstance(each, torch.Tensor)]


def floats(found):
    return [each for each in results(found) if each.is_floating_point()]


def near(found, expected, bound):
    assert found.dtype == expected.dtype and found.shape == expected.shape and found.device == expected.device
    error = (found.double() - expected.double()).abs().nan_to_num().max() if found.numel() else 0
    size = expected.double().abs().nan_to_num(posinf=0).max() if found.numel() else 0
    assert error <= bound * size


def to_array(value):
    if isinstance(value, list):
        return [to_array(each) for each in value]
    if not isinstance(value, torch.Tensor):
        return value
    if value.dtype == torch.bfloat16:
        return value.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return value.numpy()


@EVERY
@pytest.mark.parametrize("type", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_has_the_bits_of_the_function_on_arrays(case, type):
    if not isinstance(case.function, str):
        pytest.skip("makes several calls")
    arguments = case.arguments(33, type)
    if case.function == "codebook_update" and type.itemsize == 2:
        arguments.update((name, arguments[name].float()) for name in ("sums", "counts"))
    found = results(case(**arguments))
    expected = getattr(fovea, case.function)(**{name: to_array(value) for name, value in arguments.items()}, **case.options)
    for one, other in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert str(one.dtype).split(".")[1] == other.dtype.name and one.shape == other.shape
        np.testing.assert_array_equal(to_array(one), other)


class Recorder(TorchDispatchMode):
    """The operators of the package that run, with their arguments."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if function.namespace == "fovea":
            self.calls.append((function, arguments))
        return function(*arguments, **(options or {}))


def pull(case, arguments, create_graph=False):
    """Gradients of a sum of squares, by name; those of lists are lists."""
    total = sum(each.double().square().sum() for each in floats(case(**arguments)) if each.requires_grad)
    inputs = [each for name in case.gradients for each in entries(arguments[name])]
    return torch.autograd.grad(total, inputs, create_graph=create_graph)


def entries(value):
    return value if isinstance(value, list) else [value]


def detach(value):
    if isinstance(value, (list, tuple)):
        return [detach(each) for each in value]
    return value.detach() if isinstance(value, torch.Tensor) else value


@EVERY
def test_operators_pass_opcheck(case):
    with Recorder() as recorder:
        arguments = case.arguments(gradients=True)
        if case.gradients:
            pull(case, arguments)
        else:
            case(**arguments)
    names = [function.name() for function, _ in recorder.calls]
    assert len(names) >= (2 if case.gradients else 1), names
    for function, given in recorder.calls:
        found = opcheck(function, tuple(map(detach, given)))
        assert set(found.values()) == {"SUCCESS"} and len(found) == 4


@EVERY
def test_gradcheck(case):
    if not case.gradients:
        pytest.skip("has no gradient")
    arguments = case.arguments(7, torch.float64, gradients=True)
    names = [name for name in case.gradients for _ in entries(arguments[name])]
    flat = [each for name in case.gradients for each in entries(arguments[name])]

    def function(*values):
        given, rest = dict(arguments), iter(values)
        for name in case.gradients:
            found = [next(rest) for _ in entries(arguments[name])]
            given[name] = found if isinstance(arguments[name], list) else found[0]
        return tuple(each for each in floats(case(**given)) if each.requires_grad)

    assert len(names) == len(flat)
    assert torch.autograd.gradcheck(function, flat, eps=1e-6, atol=1e-6, rtol=1e-5)


@EVERY
@pytest.mark.parametrize("dynamic", [True, False])
def test_compile_without_graph_breaks(case, dynamic):
    torch.compiler.reset()
    compiled = torch.compile(case.__call__, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for N in (11, 13) if dynamic else (11,):
        arguments = case.arguments(N, gradients=True)
        for found, expected in zip(results(compiled(**arguments)), results(case(**arguments)), strict=True):
            near(found.detach(), expected.detach(), 1e-6)
            assert found.requires_grad == expected.requires_grad and found.stride() == expected.stride()
        if case.gradients:
            wrapped = case._replace(function=case.function)
            found = torch.autograd.grad(
                sum(each.double().square().sum() for each in floats(compiled(**arguments)) if each.requires_grad),
                [each for name in case.gradients for each in entries(arguments[name])],
            )
            for one, other in zip(found, pull(wrapped, arguments), strict=True):
                near(one, other, 1e-5)


def test_compile_with_one_tensor_for_two_arguments():
    """Keys that are the values, too, and lengths of both sides."""
    torch.compiler.reset()
    torch.manual_seed(0)
    q, k = (torch.randn(2, heads, 11, 8, requires_grad=True) for heads in (4, 2))
    lengths = torch.tensor([11, 7])

    def run(q, k):
        return fovea.torch.dense(q, k, k, lengths=lengths, query_lengths=lengths)

    found, expected = torch.compile(run, fullgraph=True, backend="aot_eager")(q, k), run(q, k)
    assert torch.equal(found, expected)
    for one, other in zip(torch.autograd.grad(found.sum(), (q, k)), torch.autograd.grad(expected.sum(), (q, k)), strict=True):
        assert torch.equal(one, other)


class Module(torch.nn.Module):
    def __init__(self, case):
        super().__init__()
        self.case = case

    def forward(self, arguments):
        return self.case(**arguments)


@EVERY
def test_export_with_any_number_of_tokens(case):
    arguments = case.arguments(11)
    tokens = torch.export.Dim("N", min=10, max=64)

    def dims(value):
        if isinstance(value, list):
            return [dims(each) for each in value]
        if not isinstance(value, torch.Tensor):
            return None
        return {axis: tokens for axis, extent in enumerate(value.shape) if extent == 11}

    shapes = {name: dims(value) for name, value in arguments.items()}
    program = torch.export.export(Module(case), (arguments,), dynamic_shapes=({**shapes},))
    assert any("fovea" in str(node.target) for node in program.graph.nodes)
    torch.export.save(program, file := io.BytesIO())
    file.seek(0)
    program = torch.export.load(file)
    other = case.arguments(13)
    for found, expected in zip(results(program.module()(other)), results(case(**other)), strict=True):
        near(found, expected, 1e-6)


@EVERY
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.filterwarnings("error:.*autograd kernel was not registered")
def test_programs_of_export_have_gradients(case, strict):
    if not case.gradients:
        pytest.skip("has no gradient")
    torch.compiler.reset()
    arguments = case.arguments(gradients=True)
    program = torch.export.export(Module(case), (arguments,), strict=strict).module()
    wrapped = Case(lambda **given: program(given), case.make, case.gradients)
    for found, expected in zip(pull(wrapped, arguments), pull(case, arguments), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.filterwarnings("error:.*autograd kernel was not registered")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_who_calls_the_operator_has_gradients():
    q = torch.randn(1, 2, 5, 8, requires_grad=True)

    def attend(q):
        return fovea.torch.dense(q, 2 * q, 3 * q, causal=True)

    def operate(q):
        return torch.ops.fovea.dense(q, 2 * q, 3 * q, None, True, *[None] * 10)[0]

    (expected,) = torch.autograd.grad(attend(q).sin().sum(), q)
    for function in (operate, torch.jit.trace(attend, q)):
        assert torch.equal(torch.autograd.grad(function(q).sin().sum(), q)[0], expected)
    near(torch.autograd.grad(torch.compile(operate, backend="aot_eager")(q).sin().sum(), q)[0], expected, 1e-5)
    with pytest.raises(NotImplementedError, match="^dense: found a call of its operator under torch.func, needed fovea.torch.dense$"):
        torch.func.grad(lambda q: operate(q).sum())(q.detach())
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q.detach(), torch.ones_like(q))
        with pytest.raises(NotImplementedError, match="^dense: q has a tangent, but dense has no derivatives in forward mode"):
            operate(dual)
    table, lengths = torch.zeros(1, 1, dtype=torch.int32), torch.ones(1, dtype=torch.int32)
    out, lse = torch.ops.fovea.paged(q, q, q, table, lengths, None, None, True, *[None] * 4)
    for each in (out, lse):
        with pytest.raises(RuntimeError, match="^paged: q requires a gradient, but paged has none for it"):
            each.sum().backward()


@EVERY
def test_vmap_over_a_batch(case):
    several = [case.arguments(11) for _ in range(3)]
    for index, each in enumerate(several):
        torch.manual_seed(index)
        for name in case.gradients:
            for value in entries(each[name]):
                value.normal_()
    names = list(case.gradients)
    stacked = [
        [torch.stack(each) for each in zip(*(entries(one[name]) for one in several))] for name in names
    ]

    def function(values):
        given = dict(several[0])
        for name, value in zip(names, values):
            given[name] = value if isinstance(given[name], list) else value[0]
        return tuple(results(case(**given)))

    if not names:
        pytest.skip("nothing to map over")
    found = torch.vmap(function)(stacked)
    expected = [results(case(**each)) for each in several]
    for index, each in enumerate(found):
        near(each, torch.stack([one[index] for one in expected]), 1e-6)

    def loss(values):
        return sum(each.square().sum() for each in function(values) if each.is_floating_point())

    per_sample = torch.vmap(torch.func.grad(loss))(stacked)
    for index in range(3):
        alone = torch.func.grad(loss)([[each[index] for each in value] for value in stacked])
        for one, other in zip(sum(per_sample, []), sum(alone, []), strict=True):
            near(one[index], other, 1e-5)


_W = torch.randn(3, 1, 2, 4, 8, generator=torch.Generator().manual_seed(1))
_SLOPES = torch.randn(3, 2, generator=torch.Generator().manual_seed(2))
#: Functions of three tensors and of what alone differs under torch.vmap, which is in lists for the operator.
LISTED = {
    "weights": (lambda q, k, v, w: fovea.torch.fast_multipole(q, k, v, [w], [w], group=4), _W),
    "linear": (lambda q, k, v, w: fovea.torch.fast_multipole_linear(q, k, v, [w], [w], [w], group=4), _W),
    "captures": (
        lambda q, k, v, w: fovea.torch.dense(q, k, v, score=lambda s, b, h, i, j: s + fovea.capture(w)[h] * (j - i)), _SLOPES
    ),
    "bias": (lambda q, k, v, w: fovea.torch.stream(q, [fovea.torch.Source(k, v, bias=w)]), torch.sin(torch.arange(768.0)).view(3, 16, 16)),
}  # fmt: skip


@pytest.mark.parametrize("name", LISTED)
def test_vmap_of_lists_alone(name):
    function, several = LISTED[name]
    q, k, v, weight = torch.randn(4, 1, 2, 16, 8, generator=torch.Generator().manual_seed(0)).unbind(0)
    call = functools.partial(function, q, k, v)
    together = torch.vmap(call)
    expected = torch.stack([call(each) for each in several])
    near(together(several), expected, 1e-5)
    near(torch.vmap(together)(torch.stack([several, 2 * several]))[1], torch.stack([call(2 * each) for each in several]), 1e-5)
    with torch.no_grad():
        near(together(several), expected, 1e-5)
    gradient = torch.func.grad(lambda each: (call(each) * weight).sum())
    expected = torch.stack([gradient(each) for each in several])
    near(torch.vmap(gradient)(several), expected, 1e-5)
    near(torch.func.grad(lambda all: (together(all) * weight).sum())(several), expected, 1e-5)


def test_vmap_of_nothing():
    with pytest.raises(ValueError, match="^torch.vmap: found an axis without entries, needed one at least"):
        torch.vmap(lambda q: fovea.torch.dense(q, q, q))(torch.ones(0, 1, 2, 3, 8))


def test_gradients_through_vmap():
    """Where what is differentiated is outside of it: tensors within do not say that they require a gradient."""
    grad, vmap = torch.func.grad, torch.vmap
    q, k, v, weight = torch.randn(4, 3, 2, 2, 6, 8, generator=torch.Generator().manual_seed(0)).unbind(0)

    def dense(q, k, v):
        return fovea.torch.dense(q, k, v, causal=True)

    def single(q, k, v):
        return dense(q[None], k[None], v[None])[0]

    def loss(function):
        return lambda q, k, v: (function(q, k, v) * weight).sum()

    expected = grad(loss(lambda *several: torch.stack([dense(*each) for each in zip(*several)])), (0, 1, 2))(q, k, v)
    for function in (vmap(dense), vmap(vmap(single))):
        for mine, theirs in zip(grad(loss(function), (0, 1, 2))(q, k, v), expected, strict=True):
            near(mine, theirs, 1e-5)
    for function in (vmap(dense), torch.compile(vmap(dense), backend="eager"), torch.compile(vmap(dense), backend="aot_eager")):
        leaves = [each.clone().requires_grad_() for each in (q, k, v)]
        loss(function)(*leaves).backward()
        for leaf, theirs in zip(leaves, expected, strict=True):
            near(leaf.grad, theirs, 1e-5)
    shared = grad(lambda k: loss(vmap(dense, (0, None, None)))(q, k, v[0]))(k[0])
    near(shared, grad(lambda k: loss(lambda q, k, v: torch.stack([dense(each, k, v) for each in q]))(q, k, v[0]))(k[0]), 1e-5)
    with torch.no_grad():
        near(torch.compile(vmap(dense), backend="eager", fullgraph=True)(q, k, v), vmap(dense)(q, k, v), 1e-6)
    # What has none is refused there, too.
    with pytest.raises(NotImplementedError, match="^dense: q has a tangent"):
        torch.func.jvp(lambda q: vmap(dense)(q, k, v), (q,), (q,))
    codebook = torch.randn(1, 4, 8)
    with pytest.raises(RuntimeError, match="^vq: codebook requires a gradient"):
        grad(lambda c: vmap(lambda q, k, v: fovea.torch.vq(q, k, v, c, block=2))(q, k, v).sum())(codebook)


@EVERY
def test_double_backward_is_refused(case):
    if not case.gradients:
        pytest.skip("has no gradient")
    arguments = case.arguments(gradients=True)
    first = pull(case, arguments, create_graph=True)
    with pytest.raises(RuntimeError, match=": gradients of its gradients .* do not exist"):
        first[0].sum().backward()


@EVERY
def test_inference_and_no_grad(case):
    arguments = case.arguments(gradients=True)
    expected = [each.detach() for each in results(case(**arguments))]
    for mode in (torch.no_grad(), torch.inference_mode(), contextlib.nullcontext()):
        with mode:
            found = results(case(**arguments))
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one.detach(), other, rtol=0, atol=0, equal_nan=True)
        if not isinstance(mode, contextlib.nullcontext):
            assert not any(each.requires_grad for each in found)


@pytest.mark.parametrize("wanted", [("q", "bias"), ("v", "log_weight"), ("k",)])
def test_terms_without_a_gradient_have_none(wanted):
    """In memory, the gradient of a bias is as large as that."""
    case = CASES["dense-bias"]
    assert case.gradients == ("q", "k", "v", "log_weight", "bias")
    expected = dict(zip(case.gradients, pull(case, case.arguments(gradients=True))))
    case = case._replace(gradients=wanted)
    with Recorder() as recorder:
        found = pull(case, case.arguments(gradients=True))
    ((function, given),) = [call for call in recorder.calls if "backward" in call[0].name()]
    shapes = [each.shape for each in function(*(each.detach() if isinstance(each, torch.Tensor) else each for each in given))]
    terms = [expected[each].shape for each in ("log_weight", "bias") if each in wanted]
    assert shapes == [expected[each].shape for each in "qkv"] + terms
    for name, one in zip(wanted, found, strict=True):
        assert torch.equal(one, expected[name])


def test_entries_that_there_are():
    """Functions and segments join that of scores, in graphs as well."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, heads, 21, 8, requires_grad=True) for heads in (4, 2, 2))
    ids, place = torch.arange(21)[None] // torch.tensor([[5], [8]]), torch.arange(21)

    def score(s, b, h, i, j):
        return s + (j - i) / 4

    def run(q, k, v):
        return fovea.torch.dense(q, k, v, causal=True, score=score, admit=lambda b, h, i, j: j % 4 != 2, segments=(ids, ids))

    holds = (ids[:, None, :, None] == ids[:, None, None]) & (place <= place[:, None]) & (place % 4 != 2)
    scores = q @ k.repeat_interleave(2, 1).mT / 8**0.5 + (place - place[:, None]) / 4
    weights = torch.where(holds, torch.where(holds, scores, -1e30).softmax(-1), 0)
    expected = weights @ v.repeat_interleave(2, 1)
    wanted = torch.autograd.grad(expected.sin().sum(), (q, k, v))
    for call in (run, torch.compile(run, backend="aot_eager")):
        found = call(q, k, v)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        for one, other in zip(torch.autograd.grad(found.sin().sum(), (q, k, v)), wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_all_functions_are_there():
    of_none = set().union(*OF_NO_FRAMEWORK.values())
    of_lists = {"HCAGradients", "SelectedGradients", "hca_backward", "selected_backward"}
    gradients = {name for name in fovea.__all__ if name.endswith("_backward")} - of_none - of_lists | {"SourceGradients", "VQStateGradient"}
    options = {
        "tensors say where a call runs, unless a test does": {"target"},
        "PyTorch has memory for results, and strides say which axis is which": {"out", "layout"},
        "states have quantized keys, for their gradient": {"keys"},
        "a GPU has sequences as batches, as long as the longest": {"max_q", "max_k"},
    }
    missing = {"gradients, which autograd asks operators for": gradients, "those of lists of sources, which it adds up": of_lists}
    compare_with_package(fovea.torch, missing, options)
    assert {f"{name}" for name in dir(torch.ops.fovea)} >= {name for name in gradients if name.endswith("_backward")}


def test_every_operator_has_a_case():
    assert {name.split("-")[0] for name in CASES} == set(FUNCTIONS)


def test_threads_change_no_bit():
    case = CASES["dense-bias"]
    arguments = case.arguments(97, gradients=True)
    before = fovea.num_threads()
    found = []
    try:
        for threads in (1, 2):
            fovea.set_num_threads(threads)
            found.append(pull(case, arguments))
    finally:
        fovea.set_num_threads(before)
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
