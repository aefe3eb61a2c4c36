# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Architectures of transformers with small configurations as whole programs: `architectures.py` tries all."""

import os

import pytest

pytest.importorskip("torch_mlir")

import architectures

import fovea

#: What is left of the error of those that are no program.
LEFT = {
    **dict.fromkeys(["led", "longformer"], r"torch.export does not trace it: Could not guard on data-dependent expression Eq\(u0, 1\)"),
    **dict.fromkeys(["flaubert", "xlm"], r"torch.export does not trace it: Could not guard on data-dependent expression u0 <= 13"),
    "deepseek_v4": r"it has no linalg for aten.empty_strided",
    "jetmoe": r"extents of results of aten.slice.Tensor at .* are numbers of tensors, known only when it runs",
}  # fmt: skip
#: All of which there are programs.
NAMES = """
afmoe albert apertus apertus1p5_text arcee aria_text axk1 axk2 bart beam beit bert bert-generation big_bird bigbird_pegasus biogpt bit
bitnet blenderbot blenderbot-small bloom camembert codegen cohere cohere2 cohere2_moe convbert cpmant ctrl cvt cwm data2vec-text
data2vec-vision deberta deberta-v2 deepseek_v2 deepseek_v3 deepseek_v32 diffllama dinov2 dinov2_with_registers distilbert doge dory
dots3_note_text electra ernie ernie4_5 ernie4_5_moe esm eurobert exaone exaone4 exaone_moe falcon falcon_h1 falcon_mamba flex_olmo flint
fnet focalnet gemma gemma2 gemma3_text gemma4_text gemma4_unified_text glm glm4 glm4_moe glm4_moe_lite glm_moe_dsa gpt-sw3 gpt2
gpt_bigcode gpt_neox gpt_neox_japanese gpt_oss gptj granite granite_swa granitemoe granitemoe_swa granitemoeshared gte helium hgnet_v2
hrm_text hunyuan_v1_dense hunyuan_v1_moe hy_v3 hy_v4 hyperclovax ibert ijepa inkling_text internlm3 iquestcoder jais2 jamba
jina_embeddings_v3 kolibri1 laguna lara_mini layoutlm lfm2 lfm3 llama llama4_text longt5 m2m_100 mamba marian mbart megatron-bert mellum
mimo_v2_flash minicpm3 minimax minimax_m2 minimax_m3_vl_text ministral ministral3 mistral mixtral mobilenet_v1 mobilenet_v2 mobilevit
modernbert modernbert-decoder moshi mpnet mpt mra mt5 mvp nanochat nemotron nemotron_h nllb-moe nomic_bert nystromformer olmo olmo2
olmo3 olmo_hybrid olmoe openai-gpt opt pegasus pegasus_x persimmon phi phi3 phimoe plbart poolformer pp_lcnet prophetnet pvt pvt_v2
qwen2 qwen2_moe qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen4_exp_text recurrent_gemma regnet rembert resnet roberta
roberta-prelayernorm roformer rwkv sarvam_mla sarvam_moe seamless_m4t seamless_m4t_v2 seed_oss segformer smollm3 solar_open squeezebert
stablelm starcoder2 swiftformer switch_transformers t5 tapas textnet trocr ultrabert umt5 vaultgemma vit vit_msn whisper xglm
xlm-roberta xlm-roberta-xl xlnet xlstm yoso youtu
""".split()
# A program of each takes a second or two: where some tests are chosen, one of 16 of these.
CHOSEN = NAMES[3::16] if int(os.environ.get("FOVEA_EVERY", 1)) > 1 else NAMES


@pytest.mark.parametrize("name", CHOSEN)
def test_programs(name):
    assert architectures.measure(name, architectures.find_names()[name]) <= architectures.BOUND


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_says_why(name):
    with pytest.raises(fovea.FoveaError, match=LEFT[name]):
        architectures.measure(name, architectures.find_names()[name])


def test_wrong_weights_are_noticed(monkeypatch):
    """An error is one of the results."""
    make = architectures.make

    def make_other(name, kind):
        model, inputs, expected = make(name, kind)
        model.lm_head.weight.data[5] *= 1.001
        return model, inputs, expected

    monkeypatch.setattr(architectures, "make", make_other)
    assert architectures.measure("llama", "text") > architectures.BOUND
