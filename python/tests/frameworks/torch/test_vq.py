# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vq on tensors: straight-through gradients, and windows."""

import numpy as np
import pytest
import torch
from nn_cases import normal

import fovea
import fovea.torch

BLOCK = 4


def tensors(N=24, G=2, S=6, D=8, E=5):
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, N, D), torch.randn(2, G, N, D), torch.randn(2, G, N, E)
    return [each.requires_grad_() for each in (q, k, v)], torch.randn(1, S, D)


def gradients(outputs, inputs):
    torch.manual_seed(1)
    return torch.autograd.grad((outputs * torch.randn_like(outputs)).sum(), inputs)


def test_keys_get_the_gradient_of_their_codewords():
    inputs, codebook = tensors()
    out, lse = fovea.torch.vq(*inputs, codebook, block=BLOCK, return_lse=True)
    found = gradients(out, inputs)
    torch.manual_seed(1)
    arrays = [each.detach().numpy() for each in (torch.randn_like(out), *inputs, codebook, out, lse)]
    expected = fovea.vq_backward(*arrays, block=BLOCK)
    assert found[1].abs().max() > 0
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.numpy(), other)


@pytest.mark.parametrize("cuts,memory", [((8, 16), 1), ((5, 6, 17), 1), ((1, 23), 1), ((5, 6, 17), 0), ((1, 13), 3)])
def test_gradients_of_windows_are_those_of_the_sequence(cuts, memory):
    inputs, codebook = tensors()
    options = {"block": BLOCK, "memory": memory}
    whole = fovea.torch.vq(*inputs, codebook, **options)
    state, parts = None, []
    for first, last in zip((0, *cuts), (*cuts, 24)):
        window = [each[:, :, first:last] for each in inputs]
        out, state = fovea.torch.vq(*window, codebook, **options, state=state, return_state=True)
        parts.append(out)
    assert state.codes.shape[2] == (memory + 1) * BLOCK
    assert isinstance(state, fovea.torch.VQState) and state.position.item() == 24
    torch.testing.assert_close(torch.cat(parts, 2), whole, rtol=0, atol=1e-5)
    for one, other in zip(gradients(torch.cat(parts, 2), inputs), gradients(whole, inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)


def test_no_gradient_passes_a_detached_state():
    inputs, codebook = tensors()
    first, last = ([each[:, :, part] for each in inputs] for part in (slice(0, 12), slice(12, None)))
    _, state = fovea.torch.vq(*first, codebook, block=BLOCK, return_state=True)
    assert state.mean.requires_grad and not state.count.requires_grad
    out = fovea.torch.vq(*last, codebook, block=BLOCK, state=state.detach())
    assert not gradients(out, inputs)[2][:, :, :12].any()
    attached = fovea.torch.vq(*last, codebook, block=BLOCK, state=state)
    assert gradients(attached, inputs)[2][:, :, :12].any()


def test_what_has_no_gradient_is_refused():
    inputs, codebook = tensors()
    with pytest.raises(RuntimeError, match="^vq: codebook requires a gradient, .* pass codebook.detach"):
        fovea.torch.vq(*inputs, codebook.requires_grad_(), block=BLOCK)
    with pytest.raises(RuntimeError, match="^quantize: codebook requires a gradient"):
        fovea.torch.quantize(inputs[1], codebook)
    with torch.no_grad():
        fovea.torch.quantize(inputs[1], codebook)


def test_lengths_are_separate_calls():
    inputs, codebook = tensors()
    lengths = torch.tensor([24, 7])
    out = fovea.torch.vq(*inputs, codebook, block=BLOCK, lengths=lengths)
    d_out = torch.randn_like(out)
    found = torch.autograd.grad(out, inputs, d_out)
    for b, length in enumerate(lengths.tolist()):
        one = [each[b : b + 1, :, :length].detach().requires_grad_() for each in inputs]
        part = fovea.torch.vq(*one, codebook, block=BLOCK)
        torch.testing.assert_close(out[b : b + 1, :, :length], part, rtol=0, atol=1e-6)
        assert not out[b, :, length:].any()
        for whole, expected in zip(found, torch.autograd.grad(part, one, d_out[b : b + 1, :, :length]), strict=True):
            torch.testing.assert_close(whole[b : b + 1, :, :length], expected, rtol=0, atol=1e-5)
            assert not whole[b, :, length:].any()


def test_codebooks_are_wide_and_dead_codewords_replaced():
    inputs, codebook = tensors()
    k = inputs[1].detach().bfloat16()
    codes = fovea.torch.quantize(k, codebook)[1].long()
    state = torch.zeros(1, 6, 8), torch.zeros(1, 6)
    options = {"rate": 0.5, "replace_below": 6.0, "seed": 3, "wide": True}
    with pytest.raises(ValueError, match="^seed: found -3, needed an integer of at least 0"):
        fovea.torch.codebook_update(k, codes, *state, **{**options, "seed": -3})
    found = fovea.torch.codebook_update(k, codes, *state, **options)
    assert found[0].dtype == torch.float32 and (found[2] == 6).any()
    arrays = (k.float().numpy(), codes.numpy(), *(each.numpy() for each in state))
    for one, other in zip(found, fovea.codebook_update(*arrays, **options), strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-6)
    out = fovea.torch.vq(inputs[0].bfloat16(), codes, inputs[2].bfloat16(), found[0], block=BLOCK)
    assert out.dtype == torch.bfloat16 and all(each.abs().max() > 0 for each in gradients(out, [inputs[0], inputs[2]]))


def decode(inputs, codebook, state, step=None, **terms):
    step = step or fovea.torch.vq_decode
    found = []
    for token in range(inputs[0].shape[2]):
        out, state = step(*(each[:, :, token : token + 1] for each in inputs), codebook, state, block=BLOCK, **terms)
        found.append(out)
    return torch.cat(found, 2), state


def test_decoding_gives_the_rows_of_the_sequence():
    inputs, codebook = tensors()
    inputs = [each.detach() for each in inputs]
    out, state = decode(inputs, codebook, None)
    torch.testing.assert_close(out, fovea.torch.vq(*inputs, codebook, block=BLOCK), rtol=0, atol=1e-5)
    assert state.position.item() == 24
    # It goes on where a window ended, in place.
    cut = [each[:, :, :10] for each in inputs]
    _, before = fovea.torch.vq(*cut, codebook, block=BLOCK, return_state=True)
    rest, after = decode([each[:, :, 10:] for each in inputs], codebook, before)
    torch.testing.assert_close(rest, out[:, :, 10:], rtol=0, atol=1e-5)
    assert after.mean is before.mean and before.position.item() == 24


def distance_terms(q):
    torch.manual_seed(1)
    heads, width = q.shape[1], q.shape[3]
    relative = [torch.randn(heads, 2 * BLOCK, width), torch.randn(heads, width)]
    return {"relative": relative, "distance_bias": torch.randn(heads, 2 * BLOCK)}


def test_decoding_with_terms_by_distance():
    inputs, codebook = tensors()
    inputs = [each.detach() for each in inputs]
    terms = distance_terms(inputs[0])
    out, _ = decode(inputs, codebook, None, **terms)
    torch.testing.assert_close(out, fovea.torch.vq(*inputs, codebook, block=BLOCK, **terms), rtol=0, atol=1e-5)
    step = torch.compile(fovea.torch.vq_decode, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(decode(inputs, codebook, None, step, **terms)[0], out, rtol=0, atol=0)


def test_decoding_compiles_and_passes_opcheck():
    inputs, codebook = tensors(N=6)
    inputs = [each.detach() for each in inputs]
    expected, _ = decode(inputs, codebook, None)
    step = torch.compile(fovea.torch.vq_decode, fullgraph=True, backend="aot_eager")
    found, state = decode(inputs, codebook, None, step)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    first = [each[:, :, :1].contiguous() for each in inputs]
    terms = distance_terms(inputs[0])
    arguments = (*first, codebook, BLOCK, 1, None, None, False, None, *terms.values(), 1.0, "softmax", *state[:5], None)
    assert set(torch.library.opcheck(torch.ops.fovea.vq_decode.default, arguments).values()) == {"SUCCESS"}


def test_decoding_has_no_gradient():
    inputs, codebook = tensors(N=1)
    with pytest.raises(RuntimeError, match="^vq_decode: q requires a gradient"):
        fovea.torch.vq_decode(*inputs, codebook, block=BLOCK)


@pytest.mark.parametrize("type", [torch.float32, torch.bfloat16, torch.float64])
def test_copies_of_states(type, tmp_path):
    """Tokens that follow find what there was, in files as well; gradients pass through copies in memory."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, heads, 14, width, dtype=type) for heads, width in ((4, 8), (2, 8), (2, 5)))
    codebook = torch.randn(2, 6, 8, dtype=type)
    _, state = fovea.torch.vq(q, k, v.requires_grad_(), codebook, block=3, return_state=True)
    state.save(tmp_path / "state")
    loaded, fork = fovea.torch.VQState.load(tmp_path / "state"), state.fork()
    assert fork.nbytes == state.nbytes and fork.values.requires_grad
    for one, other, part in zip(loaded[:5], fork, state):
        assert torch.equal(one, part) and torch.equal(other, part) and one.dtype == part.dtype

    def follow(state):
        return fovea.torch.vq(q, k, v.detach(), codebook, block=3, state=state)

    assert torch.equal(follow(loaded), follow(state)) and torch.equal(follow(fork), follow(state))
    compiled = torch.compile(follow, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(loaded), follow(state))
    wanted = [torch.autograd.grad(follow(each).sum(), v, retain_graph=True)[0] for each in (state, fork)]
    assert torch.equal(*wanted) and wanted[0].any()
    leaf = q.clone().requires_grad_()
    torch.autograd.grad(fovea.torch.vq(leaf, k, v.detach(), codebook, block=3, state=loaded).sum(), leaf)
    one = [each[:, :, :1].detach() for each in (q, k, v)]
    before = [part.clone() for part in state]
    outs = [fovea.torch.vq_decode(*one, codebook, each, block=3)[0] for each in (loaded, fork.detach())]
    assert torch.equal(*outs) and all(map(torch.equal, state, before)) and not torch.equal(loaded.position, state.position)
    data = (tmp_path / "state").read_bytes()
    (tmp_path / "state").write_bytes(data[:-2] + b"??")
    with pytest.raises(ValueError, match="path: found '.*', which is damaged"):
        fovea.torch.VQState.load(tmp_path / "state")


def test_files_are_those_of_arrays(tmp_path):
    q, k, v, codebook = (torch.randn(1, 2, 9, 4) for _ in range(4))
    arrays = [each.numpy() for each in (q, k, v, codebook[0])]
    fovea.vq(*arrays, block=2, return_state=True)[1].save(tmp_path / "state")
    expected = fovea.vq(*arrays, block=2, state=fovea.VQState.load(tmp_path / "state"))
    found = fovea.torch.vq(q, k, v, codebook[0], block=2, state=fovea.torch.VQState.load(tmp_path / "state"))
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("type", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_quantize_passes_gradients_straight_through(type, compiled):
    """The gradient of a key is that of its codeword, zeros for absent tokens, which may hold anything."""
    k, codebook, weight = normal(2, 3, 21, 8), normal(1, 11, 8, seed=2), normal(2, 3, 21, 8, seed=3)
    k, codebook, weight = (each.to(type) for each in (k, codebook, weight))
    k[1, :, 15:] = float("nan")
    k.requires_grad_()
    lengths = torch.tensor([21, 15], dtype=torch.int32)
    quantize = torch.compile(fovea.torch.quantize, backend="aot_eager", fullgraph=True) if compiled else fovea.torch.quantize
    k_hat, codes = quantize(k, codebook, lengths=lengths)
    expected_k, expected_codes = fovea.torch.quantize(k.detach(), codebook, lengths=lengths)
    assert torch.equal(k_hat, expected_k) and torch.equal(codes, expected_codes) and not codes.requires_grad
    (k_hat.square() * weight).sum().backward()
    expected = 2 * k_hat.detach() * weight
    expected[1, :, 15:] = 0
    assert torch.equal(k.grad, expected)
    # The loss of keys and what is made of codewords add up.
    k.grad = None
    loss = fovea.torch.commitment_loss(k, k_hat.detach(), lengths=lengths)
    (loss + (quantize(k, codebook, lengths=lengths)[0] * weight).sum()).backward()
    (of_loss,) = torch.autograd.grad(fovea.torch.commitment_loss(k, k_hat.detach(), lengths=lengths), k)
    absent = torch.zeros(2, 1, 21, 1, dtype=torch.bool)
    absent[1, :, 15:] = True
    assert torch.equal(k.grad, of_loss + weight.masked_fill(absent, 0))


def test_quantize_under_transforms():
    k, codebook, weight = normal(4, 1, 3, 9, 8), normal(1, 11, 8, seed=2), normal(4, 1, 3, 9, 8, seed=3)

    def loss(k, weight):
        return (fovea.torch.quantize(k, codebook)[0] * weight).sum()

    assert torch.equal(torch.func.grad(loss)(k[0], weight[0]), weight[0])
    assert torch.equal(torch.func.vmap(torch.func.grad(loss))(k, weight), weight)
    with pytest.raises(RuntimeError, match="codebook requires a gradient, but quantize has none for it"):
        fovea.torch.quantize(k[0].requires_grad_(), codebook.requires_grad_())


def test_no_keys_have_no_commitment_loss():
    k = torch.ones(2, 3, 0, 4, requires_grad=True)
    loss = fovea.torch.commitment_loss(k, k.detach())
    loss.backward()
    assert loss == 0 and k.grad.shape == k.shape


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_codewords_of_programs_pass_gradients_to_keys():
    k, codebook = torch.randn(2, 2, 9, 4, requires_grad=True), torch.randn(1, 5, 4)
    lengths = torch.tensor([9, 4])

    class Quantize(torch.nn.Module):
        def forward(self, k):
            return fovea.torch.quantize(k, codebook.clone(), lengths=lengths)[0]

    expected = Quantize()(k)
    (gradient,) = torch.autograd.grad(expected.sin().sum(), k)
    assert not gradient[1, :, 4:].any() and gradient[0].any()
    for program in (torch.export.export(Quantize(), (k,)).module(), torch.jit.trace(Quantize(), k)):
        found = program(k)
        assert torch.equal(found, expected) and torch.equal(torch.autograd.grad(found.sin().sum(), k)[0], gradient)
