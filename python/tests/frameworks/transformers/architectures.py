# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All architectures of transformers with small configurations and random weights, as whole programs.

    PYTHONPATH=build/python .venv-frameworks/bin/python python/tests/frameworks/transformers/architectures.py [names...]

prints for each what became of it: the largest error of its results beside those of PyTorch, why it is no program, or why it
was not tried: its configuration has no small form that follows from names of its sizes, or PyTorch does not run it.
"""

import contextlib
import io
import logging
import signal
import sys
import time
import warnings

import torch
import transformers
from torch.utils import _pytree as pytree
from transformers.models.auto import modeling_auto as auto

import fovea
import fovea.torch

VOCABULARY, TOKENS = 97, 13
#: Of relative errors; those of tiny models are about 1e-6.
BOUND = 5e-5

#: Sizes by the names that configurations have for them.
_SIZES = {
    32: "hidden_size d_model n_embd dim embedding_size word_embed_proj_dim input_hidden_size hidden_dim emb_dim image_size",
    2: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_encoder_layers num_decoder_layers"
       " num_key_value_heads num_kv_heads num_experts_per_tok num_experts_per_token moe_topk moe_k top_k_experts num_mem_blocks",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_local_experts num_experts"
       " n_routed_experts moe_num_experts qk_rope_head_dim rotary_dim",
    8: "head_dim d_kv qk_nope_head_dim v_head_dim kv_lora_rank patch_size state_size mamba_d_state linear_key_head_dim"
       " linear_value_head_dim index_head_dim",
    16: "moe_intermediate_size q_lora_rank shared_expert_intermediate_size expert_ffn_hidden_size",
    48: "intermediate_size d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim n_inner ffn_hidden_size",
    64: "max_position_embeddings n_positions max_seq_len n_ctx",
    5: "sliding_window",
    VOCABULARY: "vocab_size decoder_vocab_size vocab_size_per_layer_input",
    1: "n_group topk_group first_k_dense_replace",
    0: "pad_token_id",
}  # fmt: skip
_OVERRIDES = {name: size for size, names in _SIZES.items() for name in names.split()}
_OVERRIDES |= {"bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "use_cache": False}

#: Names of models of transformers, by the class that makes them.
_KINDS = {
    "text": (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, transformers.AutoModelForCausalLM),
    "masked": (auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, transformers.AutoModelForMaskedLM),
    "pair": (auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, transformers.AutoModelForSeq2SeqLM),
    "image": (auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES, transformers.AutoModelForImageClassification),
}


def find_names():
    """Every architecture, with the first of the kinds that it is."""
    names = {}
    for kind in ("pair", "masked", "text", "image"):
        for name in _KINDS[kind][0]:
            names.setdefault(name, kind)
    return names


class NotTried(Exception):
    """A model that has no small form here."""


def _configure(name):
    config = transformers.CONFIG_MAPPING[name]
    known = config().to_dict()
    sizes = {key: value for key, value in _OVERRIDES.items() if key in known and not isinstance(known[key], (dict, list, tuple))}
    if "kv_lora_rank" in known:
        # Of which all heads have keys of their own, of the widths of their parts.
        sizes.update(num_key_value_heads=4)
        sizes.pop("head_dim", None)
    return config(**sizes)


def make(name, kind):
    """A model and its inputs."""
    torch.manual_seed(0)
    try:
        config = _configure(name)
        with torch.device("meta"):
            sizes = {key: each.shape for key, each in _KINDS[kind][1].from_config(config).named_parameters()}
        largest = max(sizes, key=lambda key: sizes[key].numel())
        if sum(each.numel() for each in sizes.values()) > (3e7 if kind == "image" else 3e6):
            raise NotTried(f"its sizes have other names, as those of {largest}: {list(sizes[largest])}")
        model = _KINDS[kind][1].from_config(config, dtype=torch.float32).eval()
        with torch.no_grad():
            # Some begin with equal ones, as routers whose experts PyTorch then chooses in no order.
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(0, parameter[0].numel() ** -0.5)
        if kind == "image":
            inputs = {"pixel_values": torch.randn(2, getattr(config, "num_channels", 3), 32, 32)}
        else:
            inputs = {"input_ids": torch.randint(3, VOCABULARY, (2, TOKENS))}
        if kind == "pair":
            # Some need the mask where torch.export traces them.
            inputs["attention_mask"] = torch.ones(2, TOKENS, dtype=torch.long)
            inputs["decoder_input_ids"] = torch.randint(3, VOCABULARY, (2, 7))
        with torch.no_grad():
            expected = model(**inputs)
    except NotTried:
        raise
    except Exception as error:
        raise NotTried(f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}") from error
    expected = [each for each in pytree.tree_leaves(expected) if isinstance(each, torch.Tensor)]
    if not all(each.isfinite().all() for each in expected):
        raise NotTried("its results are not finite")
    return model, inputs, expected


def measure(name, kind):
    """The largest relative error of a program of the model. FoveaError tells why there is none."""
    model, inputs, expected = make(name, kind)
    program = fovea.import_torch(model, **inputs)
    found = program(*inputs.values())
    found = found if isinstance(found, tuple) else (found,)
    errors = [0.0]
    for one, other in zip(found, expected, strict=True):
        one = torch.as_tensor(one)
        assert one.shape == other.shape, f"{one.shape} {other.shape}"
        if other.numel():
            errors.append(float((one.double() - other.double()).abs().max() / other.double().abs().max().clamp(min=1e-9)))
    return max(errors)


def _stop(*_):
    raise TimeoutError("took more than two minutes")


def main(names):
    known = find_names()
    signal.signal(signal.SIGALRM, _stop)
    counts = {}
    for name in names or known:
        begin = time.time()
        signal.alarm(120)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                error = measure(name, known[name])
            result, more = ("ok" if error <= BOUND else "wrong"), f"{error:.1e}"
        except NotTried as reason:
            result, more = "not tried", str(reason)
        except fovea.FoveaError as reason:
            result, more = "no program", str(reason)
        except Exception as reason:
            result, more = "failed", f"{type(reason).__name__}: {reason}"
        signal.alarm(0)
        counts[result] = counts.get(result, 0) + 1
        print(f"{result} | {name} | {known[name]} | {time.time() - begin:.1f} s | {' '.join(more.split())[:300]}", flush=True)
    print(", ".join(f"{count} {result}" for result, count in counts.items()))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    main(sys.argv[1:])
