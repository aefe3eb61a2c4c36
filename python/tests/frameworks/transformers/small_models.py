# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models of transformers with random weights, and inputs for them."""

import torch
import transformers
from transformers.models.minimax_m3_vl.configuration_minimax_m3_vl import MiniMaxM3VLTextConfig
from transformers.models.minimax_m3_vl.modeling_minimax_m3_vl import MiniMaxM3VLForCausalLM

VOCABULARY = 97

_SIZES = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
_TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=None)
_GROUPED = dict(**_SIZES, **_TOKENS, num_key_value_heads=2, head_dim=8)
_ENCODER_DECODER = dict(
    vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, decoder_start_token_id=2, **_TOKENS,
)  # fmt: skip
_MIXED = ["sliding_attention", "full_attention"]

# What is registered differs from "eager" in the attention alone.
CONFIGURATIONS = {
    "bert": lambda: transformers.BertConfig(**_SIZES, pad_token_id=0),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64, **_TOKENS
    ),
    "llama": lambda: transformers.LlamaConfig(**_GROUPED),
    "mistral": lambda: transformers.MistralConfig(**_GROUPED, sliding_window=5),
    "qwen3": lambda: transformers.Qwen3Config(**_GROUPED),
    "gemma2": lambda: transformers.Gemma2Config(
        **_GROUPED, sliding_window=5, query_pre_attn_scalar=8, attn_logit_softcapping=3.0, layer_types=_MIXED
    ),
    "gpt_oss": lambda: transformers.GptOssConfig(
        **_GROUPED, sliding_window=5, num_local_experts=2, num_experts_per_tok=1, layer_types=_MIXED
    ),
    "deepseek_v3": lambda: transformers.DeepseekV3Config(
        **_SIZES, **_TOKENS, moe_intermediate_size=16, n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1,
        kv_lora_rank=8, q_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=12, num_key_value_heads=4,
        first_k_dense_replace=1,
    ),
    "deepseek_v32": lambda: transformers.DeepseekV32Config(
        **_SIZES, **_TOKENS, moe_intermediate_size=16, n_routed_experts=4, num_experts_per_tok=2, n_group=1,
        topk_group=1, kv_lora_rank=8, q_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=12,
        index_topk=6, index_n_heads=2, index_head_dim=8, num_key_value_heads=4,
    ),
    "minimax_m3": lambda: MiniMaxM3VLTextConfig(
        **_GROUPED, index_n_heads=2, index_head_dim=8, index_block_size=3, index_topk_blocks=2, index_local_blocks=1,
        num_local_experts=4, num_experts_per_tok=2, layer_types=["full_attention", "minimax_m3_sparse"],
        rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=1.0),
    ),
    "modernbert": lambda: transformers.ModernBertConfig(
        **_SIZES, local_attention=6, layer_types=_MIXED, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        cls_token_id=1, sep_token_id=2, reference_compile=False,
    ),
    "t5": lambda: transformers.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=2,
        dropout_rate=0.0, **_TOKENS,
    ),
    "whisper": lambda: transformers.WhisperConfig(
        **_ENCODER_DECODER, num_mel_bins=8, max_source_positions=15, max_target_positions=64,
        suppress_tokens=None, begin_suppress_tokens=None,
    ),
}  # fmt: skip

CLASSES = {
    "bert": transformers.BertForMaskedLM,
    "minimax_m3": MiniMaxM3VLForCausalLM,
    "modernbert": transformers.ModernBertForMaskedLM,
    "t5": transformers.T5ForConditionalGeneration,
    "whisper": transformers.WhisperForConditionalGeneration,
}

ENCODERS = {"bert", "modernbert"}


def make(name, **options):
    """A model that runs eagerly, in evaluation mode, with weights large enough to matter."""
    torch.manual_seed(0)
    configuration = CONFIGURATIONS[name]()
    for key, value in options.items():
        setattr(configuration, key, value)
    make_model = CLASSES.get(name, transformers.AutoModelForCausalLM)
    make_model = getattr(make_model, "_from_config", None) or make_model.from_config
    model = make_model(configuration, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, parameter.shape[-1] ** -0.5)
            elif "sink" in "".join(key for key, value in model.named_parameters() if value is parameter):
                parameter.normal_()
    return model


def make_inputs(name, padding=None, tokens=13):
    """Arguments of the model, and which of its results count."""
    torch.manual_seed(1)
    ids = torch.randint(3, VOCABULARY, (2, tokens))
    present = torch.ones_like(ids)
    if padding == "left":
        present[1, :4] = 0
    elif padding == "right":
        present[1, -4:] = 0
    ids = ids.where(present.bool(), torch.tensor(0))
    if name == "whisper":
        return dict(input_features=torch.randn(2, 8, 30), decoder_input_ids=ids, decoder_attention_mask=present), present
    inputs = dict(input_ids=ids, attention_mask=present)
    if name == "t5":
        inputs["decoder_input_ids"] = torch.randint(3, VOCABULARY, (2, 7))
        return inputs, torch.ones(2, 7, dtype=torch.long)
    return inputs, present
