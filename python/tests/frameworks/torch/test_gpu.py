# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors on a GPU, as far as they can be tested without one: kernels are registered, and what traces sees
results there.  python/tests/test_device_tensors.py tests calls, with a driver that pretends."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_cases import CASES, attention

import fovea
import fovea.torch
from fovea._declarations import FUNCTIONS
from fovea.math import tanh
from fovea.torch import _operator
from fovea.torch._transformers import attend


def results(found):
    return [each for each in (found if isinstance(found, tuple) else (found,)) if isinstance(each, torch.Tensor)]


def test_operators_have_kernels_for_cpus_and_gpus():
    operators = [*_operator.FORWARD.values(), *_operator.BACKWARD.values(), torch.ops.fovea.vq_decode.default]
    assert len(operators) == 1 + len(FUNCTIONS) + sum(bool(each.backward) for each in FUNCTIONS.values())
    for operator in operators:
        for key in ("CPU", "CUDA", "Meta"):
            has_one = torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key)
            assert has_one or (key == "Meta" and torch._library.simple_registry.singleton.find(operator.name()).fake_impl)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_results_are_where_tensors_are(case):
    expected = results(case(**case.arguments()))
    with FakeTensorMode(), torch.no_grad(), torch.device("cuda"):
        found = results(case(**case.arguments()))
    for one, other in zip(found, expected, strict=True):
        assert one.device.type == "cuda" and (one.shape, one.dtype) == (other.shape, other.dtype)
        assert one.is_contiguous()


def test_devices_are_not_mixed():
    """Also while something is traced, where one device would win."""
    with FakeTensorMode(), torch.no_grad():
        host = attention(11, torch.float32)
        with torch.device("cuda"):
            device = attention(11, torch.float32)
        for given, name in (({**device, "k": host["k"]}, "k"), ({**host, "v": device["v"]}, "v")):
            with pytest.raises(ValueError, match=f"^{name}: found a tensor on .*, needed all tensors on the same device"):
                fovea.torch.dense(**given)
    q, k, v = attention(11, torch.float32).values()
    for given, name in (((q, k.to("meta"), v), "k"), ((q.to("meta"), k, v), "k"), ((q, k, v.to("meta")), "v")):
        with pytest.raises(ValueError, match=f"^{name}: found a tensor on .*, needed all tensors on the same device"):
            fovea.torch.dense(*given)


def test_kernels_for_gpus_read_rows():
    """Wherever they lie; those that are not contiguous are copied, in the same order."""
    seen = []
    run = _operator.with_rows(lambda *values: seen.append(values))
    turned, heads = torch.randn(3, 4).mT, torch.randn(2, 3, 4, 5).transpose(1, 2)
    steps = torch.randn(2, 3, 4, 10).transpose(1, 2)[..., ::2]
    run(turned, [turned, None], None, 2.5, heads, steps, torch.tensor(1.0), heads[..., :1])
    (first, (second, nothing), *rest), = seen
    assert first.is_contiguous() and torch.equal(first, turned) and torch.equal(second, first) and nothing is None
    assert rest[:2] == [None, 2.5] and rest[2] is heads and rest[5].data_ptr() == heads.data_ptr()
    assert torch.equal(rest[3], steps) and rest[3].stride() == heads.stride() == torch.empty_like(steps).stride()


def test_gradients_of_trees_read_contiguous_ones():
    seen = []
    run = _operator.with_contiguous_gradient(lambda *values, **options: seen.append(values))
    turned = torch.randn(3, 4).mT
    run(turned, turned, out=None)
    run(None, turned)
    (gradient, other), (nothing, _) = seen
    assert gradient.is_contiguous() and torch.equal(gradient, turned) and other is turned and nothing is None


def turn(value):
    """The same, with the second of four axes within the third in memory."""
    if isinstance(value, torch.Tensor) and value.dim() == 4:
        return value.transpose(1, 2).contiguous().transpose(1, 2)
    return value


@pytest.mark.parametrize("name", ["dense", "vq", "rope"])
def test_results_have_the_layout_of_their_arguments(name):
    """As on CPUs, also while something is traced."""
    case = CASES[name]
    expected = results(case(**{key: turn(value) for key, value in case.arguments().items()}))
    with FakeTensorMode(), torch.no_grad(), torch.device("cuda"):
        found = results(case(**{key: turn(value) for key, value in case.arguments().items()}))
    assert [each.stride() for each in found] == [each.stride() for each in expected]
    assert not expected[0].is_contiguous()


def test_without_a_device():
    q, k, v = attention(11, torch.float32).values()
    with pytest.raises(fovea.FoveaError, match="cannot use target 'gpu': .*CUDA"):
        fovea.torch.dense(q, k, v, target="gpu")


@pytest.mark.parametrize("name", ["dense", "vq", "low_rank", "pool", "rope"])
def test_types_that_gpus_lack(name):
    case = CASES[name]
    arguments = case.arguments(11, torch.float64)
    first = next(iter(arguments))
    with pytest.raises(ValueError, match=f"^{first}: found element type float64, needed one of float16, bfloat16, float32 on a GPU$"):
        case._replace(options={**case.options, "target": "gpu-sim"})(**arguments)


def test_functions_of_scores():
    slopes = fovea.capture(torch.rand(4))
    given = {**attention(11, torch.float32), "score": lambda s, b, h, i, j: 2 * tanh(s / 2) + slopes[h] * (j - i)}
    found, expected = fovea.torch.dense(**given, target="gpu-sim"), fovea.torch.dense(**given)
    assert (found - expected).abs().max() <= 1e-5


def test_soft_caps_of_models():
    fovea.torch.explain_fallbacks(clear=True)
    with FakeTensorMode(), torch.no_grad(), torch.device("cuda"):
        found, _ = attend(torch.nn.Linear(1, 1), *attention(11, torch.float32).values(), None, softcap=2.0)
    assert found.device.type == "cuda" and found.shape == (2, 11, 4, 5)
    assert not fovea.torch.explain_fallbacks()
