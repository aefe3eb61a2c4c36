# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of other packages that cannot be read: each error names the argument."""

import numpy as np
import pytest
from test_options import CALLS, functions

import fovea


class Foreign:
    """A tensor that exports DLPack as PyTorch does, or refuses to."""

    def __init__(self, array, error=None, requires_grad=False, device=(1, 0)):
        self.array, self.error, self.device = array, error, device
        self.requires_grad = requires_grad
        self.dtype, self.shape = array.dtype, array.shape

    def __dlpack_device__(self):
        if self.device is None:
            raise ValueError("Unknown device type meta for Dlpack")
        return self.device

    def __dlpack__(self, **options):
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        if self.error is not None:
            raise self.error
        return self.array.__dlpack__(**options)

    def reshape(self, *shape):
        return Foreign(self.array.reshape(*shape), self.error, self.requires_grad, self.device)


def places(name):
    """The arrays of a call: where each is, and what errors call it."""
    arguments, options = CALLS[name]
    parameters = list(functions()[name].parameters)
    for index, value in enumerate(arguments):
        if isinstance(value, np.ndarray):
            yield (index, None), parameters[index]
        elif isinstance(value, list) and isinstance(value[-1], np.ndarray):
            yield (index, len(value) - 1), f"{parameters[index]}[{len(value) - 1}]"


def put(arguments, place, change):
    index, entry = place
    arguments = list(arguments)
    if entry is None:
        arguments[index] = change(arguments[index])
    else:
        arguments[index] = [*arguments[index][:entry], change(arguments[index][entry])]
    return arguments


REQUIRES = ": requires a gradient, which would be lost: pass detach() of it"
REFUSALS = {
    "sparse": (dict(error=RuntimeError("cannot export a sparse layout")), "RuntimeError: cannot export a sparse"),
    "conjugate": (dict(error=BufferError("conjugate bit")), "BufferError: conjugate bit"),
    "no device": (dict(device=None), "ValueError: Unknown device type meta"),
    "some error": (dict(error=KeyError("x")), "KeyError: 'x'"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_gradients_that_would_be_lost(name):
    function, (arguments, options) = getattr(fovea, name), CALLS[name]
    # Before and after a kernel is known for such arrays without gradients.
    for known in (False, True):
        for place, argument in places(name):
            if known:
                function(*put(arguments, place, Foreign), **options)
            wrong = put(arguments, place, lambda array: Foreign(array, requires_grad=True))
            with pytest.raises(ValueError) as error:
                function(*wrong, **options)
            assert str(error.value).startswith(argument + REQUIRES), argument


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case):
    options, text = REFUSALS[case]
    for name in ("dense", "fast_multipole", "tree_build", "rope", "tree_fetch"):
        arguments, given = CALLS[name]
        for place, argument in places(name):
            wrong = put(arguments, place, lambda array: Foreign(array, **options))
            fovea.clear_cache()
            with pytest.raises(ValueError) as error:
                getattr(fovea, name)(*wrong, **given)
            message = str(error.value)
            assert message.startswith(f"{argument}: found Foreign that cannot be read") and text in message


def test_arrays_that_are_options():
    (q, k, v), options = CALLS["dense"]
    for name, shape in (("log_weight", (20,)), ("log_weight", (1, 2, 20)), ("bias", (20, 20)), ("bias", (1, 2, 20, 20))):
        term = Foreign(np.zeros(shape, np.float32), requires_grad=True)
        with pytest.raises(ValueError, match=f"^{name}{REQUIRES[:22]}"):
            fovea.dense(q, k, v, **{name: term})
    arguments, options = CALLS["tree_select"]
    with pytest.raises(ValueError, match="^score: requires a gradient"):
        fovea.tree_select(*arguments, score=Foreign(options["score"], requires_grad=True))


def test_kernels():
    kernel = fovea.compile("func.func @f(%a: tensor<2xf32>, %b: tensor<2xf32>) -> tensor<2xf32> {\n  return %b : tensor<2xf32>\n}")
    good = np.zeros(2, np.float32)
    with pytest.raises(ValueError, match=r"^argument 1 \(%b\) of @f: requires a gradient"):
        kernel(good, Foreign(good, requires_grad=True))
    with pytest.raises(ValueError, match=r"^argument 0 \(%a\) of @f: found Foreign that cannot be read"):
        kernel(Foreign(good, error=BufferError("no")), good)


@pytest.mark.parametrize("name", ["hca", "low_rank", "rope", "top_k", "tree_fetch", "vq"])
def test_masks_that_would_be_lost(name):
    arguments, given = CALLS[name]
    for place, argument in places(name):
        # Whatever it hides.
        wrong = put(arguments, place, np.ma.masked_array)
        with pytest.raises(ValueError) as error:
            getattr(fovea, name)(*wrong, **given)
        assert str(error.value).startswith(f"{argument}: found a masked array, whose mask would be lost, needed one without"), argument


def test_masks_of_options():
    (q, k, v), _ = CALLS["dense"]
    masked = np.ma.masked_array([5])
    with pytest.raises(ValueError, match="^lengths: found a masked array"):
        fovea.dense(q, k, v, lengths=masked)
    with pytest.raises(ValueError, match="^query_mask: found a masked array"):
        fovea.low_rank(q, k, v, mask=fovea.Causal(), query_mask=np.ma.masked_array(np.ones((1, 20), bool)))
    with pytest.raises(ValueError, match="^out: found a masked array"):
        fovea.dense(q, k, v, out=np.ma.masked_array(np.empty_like(q)))
    with pytest.raises(ValueError, match="^x: found a masked array"):
        fovea.PoolState(interval=2).append(np.ma.masked_array(q), q)


class Interrupts(Foreign):
    def __dlpack__(self, **options):
        raise KeyboardInterrupt


def test_what_is_no_refusal_goes_on():
    (q, k, v), options = CALLS["dense"]
    with pytest.raises(KeyboardInterrupt):
        fovea.dense(q, Interrupts(k), v)
    with pytest.raises(MemoryError):
        fovea.dense(q, Foreign(k, error=MemoryError()), v)


@pytest.mark.parametrize("array,text", [
    (np.zeros((1, 2, 20, 8), complex), "k: found element type complex128"),
    (np.zeros((1, 2, 20, 8), "datetime64[s]"), "k: found element type datetime64"),
    (np.zeros((1, 2, 20, 8), object), "k: found element type object"),
    (np.zeros((1, 2, 20, 8), "U3"), "k: found element type <U3"),
    (np.zeros((1, 2, 20, 8), "f4,i4"), "k: found element type"),
    (np.zeros((1, 2, 20, 8), np.longdouble), "k: found element type"),
    (np.zeros((), np.float32), "k: found rank 0"),
    (Foreign(np.zeros((), np.float32)), "k: found rank 0"),
    (Foreign(np.zeros((1, 2, 20, 8), complex)), "k: found element type complex128, needed bfloat16"),
    (memoryview(b"12"), "k: found element type"),
    (None, "k: found NoneType"),
])  # fmt: skip
def test_other_arrays(array, text):
    (q, _, v), _ = CALLS["dense"]
    with pytest.raises(ValueError) as error:
        fovea.dense(q, array, v)
    assert str(error.value).startswith(text)


def test_what_can_be_read_is():
    """Backwards, in the other byte order and read-only."""
    (q, k, v), _ = CALLS["dense"]
    expected = fovea.dense(q, k, v)
    backwards = np.ascontiguousarray(k[:, :, ::-1, ::-1])[:, :, ::-1, ::-1]
    frozen = k.copy()
    frozen.flags.writeable = False
    for other in (backwards, k.astype(k.dtype.newbyteorder()), frozen, Foreign(k), Foreign(backwards)):
        assert np.array_equal(fovea.dense(q, other, v), expected)


def test_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    (q, k, v), _ = CALLS["dense"]
    q, k, v = map(torch.from_numpy, (q, k, v))
    expected = fovea.dense(q, k, v)
    with pytest.raises(ValueError, match=f"^k{REQUIRES[:22]}"):
        fovea.dense(q, k.clone().requires_grad_(), v)
    assert np.array_equal(fovea.dense(q, k.clone().requires_grad_().detach(), v), expected)
    for wrong in (k.to_sparse(), k.to("meta"), torch.complex(k, k), torch.complex(k, k).conj()):
        # A sparse array looks like one that a kernel is known for.
        with pytest.raises(ValueError, match=r"^(k|argument 1 \(%k\) of @dense): found "):
            fovea.dense(q, wrong, v)
    with pytest.raises(ValueError, match=f"^positions{REQUIRES[:22]}"):
        fovea.rope(q, torch.ones(20, requires_grad=True))


def test_all_functions_have_arrays():
    """But those that take nothing but a tree, or numbers."""
    without = {"tree_materialize", "tree_select", "rope_frequencies"}
    assert {name for name in CALLS if not list(places(name))} == without
