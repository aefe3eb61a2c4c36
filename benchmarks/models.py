# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of transformers with random weights, compiled with torch.compile and Fovea.

    python benchmarks/models.py [MODEL ...]

prints for each how many attentions Fovea computes, of how many soft-maxes, the largest error
beside eager PyTorch, relative to the largest result, and how many times as fast as eager
PyTorch it is and inductor alone is: medians of ratios of neighbouring calls, on one thread.
`--rest=eager` leaves the rest uncompiled, and takes seconds instead of minutes; `--inductor`
has the column of inductor then, too.  `--whole` has columns for one program of all of the
model, by torch-mlir: how fast it is and how many seconds Fovea compiles it, and inductor its
own; "-" where there is none.  DiT is of diffusers, which must be installed.
"""

import argparse
import statistics
import time

import torch
import transformers

import fovea
import fovea.torch
from fovea.torch import _backend

VOCABULARY = 1000


def _decoder(options, **others):
    return dict(
        vocab_size=VOCABULARY, hidden_size=options.width, num_hidden_layers=options.layers, num_attention_heads=options.heads,
        intermediate_size=4 * options.width, max_position_embeddings=4096, pad_token_id=0, **others,
    )  # fmt: skip


def _grouped(options, **others):
    return _decoder(
        options, num_key_value_heads=max(1, options.heads // 4), head_dim=options.width // options.heads, **others
    )


def _encoder_decoder(options):
    return dict(
        vocab_size=VOCABULARY, d_model=options.width, encoder_layers=options.layers, decoder_layers=options.layers,
        encoder_attention_heads=options.heads, decoder_attention_heads=options.heads, encoder_ffn_dim=4 * options.width,
        decoder_ffn_dim=4 * options.width, pad_token_id=0, bos_token_id=1, eos_token_id=None, decoder_start_token_id=2,
    )  # fmt: skip


def _alternating(options):
    return [("sliding_attention", "full_attention")[layer % 2] for layer in range(options.layers)]


# Of transformers; DiT is not.
CONFIGURATIONS = {
    "BERT": lambda o: transformers.BertConfig(**_decoder(o)),
    "GPT-2": lambda o: transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=o.width, n_layer=o.layers, n_head=o.heads, n_positions=4096
    ),
    "Llama": lambda o: transformers.LlamaConfig(**_grouped(o)),
    "Mistral": lambda o: transformers.MistralConfig(**_grouped(o, sliding_window=max(1, o.tokens // 4))),
    "Qwen 3": lambda o: transformers.Qwen3Config(**_grouped(o)),
    "Gemma 2": lambda o: transformers.Gemma2Config(
        **_grouped(o, sliding_window=max(1, o.tokens // 4), layer_types=_alternating(o))
    ),
    "gpt-oss": lambda o: transformers.GptOssConfig(
        **_grouped(o, num_local_experts=4, num_experts_per_tok=2, layer_types=_alternating(o))
    ),
    "DeepSeek-V3": lambda o: transformers.DeepseekV3Config(
        **_decoder(
            o, num_key_value_heads=o.heads, q_lora_rank=o.width // 2, kv_lora_rank=o.width // 4, qk_nope_head_dim=16,
            qk_rope_head_dim=16, v_head_dim=o.width // o.heads, n_routed_experts=4, num_experts_per_tok=2, n_group=1,
            topk_group=1, moe_intermediate_size=o.width, first_k_dense_replace=o.layers - 1,
        )
    ),
    "ModernBERT": lambda o: transformers.ModernBertConfig(
        **_decoder(o, local_attention=max(2, o.tokens // 4), bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)
    ),
    "BLOOM": lambda o: transformers.BloomConfig(
        vocab_size=VOCABULARY, hidden_size=o.width, n_layer=o.layers, n_head=o.heads
    ),
    "T5": lambda o: transformers.T5Config(
        vocab_size=VOCABULARY, d_model=o.width, d_kv=o.width // o.heads, d_ff=4 * o.width, num_layers=o.layers,
        num_heads=o.heads, decoder_start_token_id=2, dropout_rate=0.0,
    ),
    "Whisper": lambda o: transformers.WhisperConfig(
        **_encoder_decoder(o), num_mel_bins=80, max_source_positions=o.tokens, max_target_positions=o.tokens
    ),
    "ViT": lambda o: transformers.ViTConfig(
        hidden_size=o.width, num_hidden_layers=o.layers, num_attention_heads=o.heads, intermediate_size=4 * o.width
    ),
    "Swin": lambda o: transformers.SwinConfig(embed_dim=o.width // 2, depths=[2, 2], num_heads=[o.heads // 2, o.heads]),
    "CLIP": lambda o: transformers.CLIPVisionConfig(
        hidden_size=o.width, num_hidden_layers=o.layers, num_attention_heads=o.heads, intermediate_size=4 * o.width
    ),
}  # fmt: skip

MODELS = [*CONFIGURATIONS, "DiT"]


def make(name, options):
    """A model, in evaluation mode, and the arguments of a call."""
    torch.manual_seed(0)
    if name == "DiT":
        from diffusers.models import DiTTransformer2DModel

        model = DiTTransformer2DModel(
            num_attention_heads=options.heads, attention_head_dim=options.width // options.heads, in_channels=4,
            num_layers=options.layers, sample_size=32, patch_size=2, num_embeds_ada_norm=VOCABULARY,
        )  # fmt: skip
        latents = torch.randn(options.batch, 4, 32, 32)
        steps = torch.full((options.batch,), 5)
        return model.eval(), {"hidden_states": latents, "timestep": steps, "class_labels": steps}
    configuration = CONFIGURATIONS[name](options)
    configuration.use_cache = False
    if name == "CLIP":
        model = transformers.CLIPVisionModel._from_config(configuration, attn_implementation=options.attention)
    else:
        model = transformers.AutoModel.from_config(configuration, attn_implementation=options.attention)
    ids = torch.randint(3, VOCABULARY, (options.batch, options.tokens))
    if name in ("ViT", "Swin", "CLIP"):
        size = configuration.image_size
        return model.eval(), {"pixel_values": torch.randn(options.batch, 3, size, size)}
    if name == "Whisper":
        return model.eval(), {"input_features": torch.randn(options.batch, 80, 2 * options.tokens), "decoder_input_ids": ids}
    return model.eval(), {"input_ids": ids, **({"decoder_input_ids": ids} if name == "T5" else {})}


def find_result(outputs):
    return outputs.sample if "sample" in outputs else outputs.last_hidden_state


def timed(function, *args, **kwargs):
    """What it returns, and the seconds that it takes."""
    start = time.perf_counter()
    result = function(*args, **kwargs)
    return result, time.perf_counter() - start


def compile(model, rest):
    """The model, compiled, and of each graph the attentions that were found."""
    counts = []

    def count(module, inputs):
        counts.append(sum(node.target is _backend.attend for node in module.graph.nodes))
        return torch._dynamo.lookup_backend(rest)(module, inputs)

    return torch.compile(model, backend="fovea", options={"rest": count}), counts


def import_whole(model, inputs):
    """The model as one program and the seconds that Fovea takes to compile it, or None twice."""
    try:
        program = fovea.import_torch(model, **inputs)
        # The comment is why it is not found among those that are compiled already.
        _, seconds = timed(fovea.compile, program.text + "// again\n")
    except (ValueError, fovea.FoveaError) as error:
        print(f"{type(model).__name__}: {str(error).splitlines()[0]}")
        return None, None

    def call(**inputs):
        found = program(**inputs)
        return torch.from_numpy(found[0] if isinstance(found, tuple) else found)

    return call, seconds


def measure(calls, rounds):
    """Of each, medians of how many times as fast as the first it is."""
    ratios = [[] for _ in calls]
    for _ in range(rounds):
        seconds = []
        for call in calls:
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        for ratio, each in zip(ratios, seconds):
            ratio.append(seconds[0] / each)
    return [statistics.median(ratio) for ratio in ratios]


@torch.no_grad()
def run(name, options):
    """The row of a model."""
    torch._dynamo.reset()
    fovea.torch.explain_fallbacks(clear=True)
    try:
        model, inputs = make(name, options)
    except (ImportError, ValueError) as error:
        return [name, str(error).split(".")[0]]
    expected = find_result(model(**inputs))
    compiled, counts = compile(model, options.rest)
    calls = [lambda: model(**inputs), lambda: compiled(**inputs)]
    found = [find_result(compiled(**inputs))]
    seconds = []
    if options.inductor:
        alone = torch.compile(model, backend="inductor")
        seconds.append(timed(alone, **inputs)[1])
        calls.append(lambda: alone(**inputs))
    if options.whole:
        whole, compiling = import_whole(model, inputs)
        seconds.append(compiling)
        if whole is not None:
            found.append(whole(**inputs))
            calls.append(lambda: whole(**inputs))
    error = max(float((each - expected).abs().max() / expected.abs().max()) for each in found)
    left = sum(each.calls for each in fovea.torch.explain_fallbacks())
    ratios = [f"{ratio:.2f}x" for ratio in measure(calls, options.rounds)[1:]]
    if options.whole:
        ratios += ["-"] if whole is None else []
        ratios += ["-" if each is None else f"{each:.1f} s" for each in seconds]
    return [name, f"{sum(counts)} of {sum(counts) + left}", f"{error:.1e}", *ratios]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; all but DiT by default, which needs diffusers")
    parser.add_argument("--rest", default="inductor", help="the backend for all but attention")
    parser.add_argument("--attention", default="eager", choices=["eager", "sdpa"], help="of transformers, before it is found")
    parser.add_argument("--inductor", action="store_true", help="also with inductor alone, where the rest is another")
    parser.add_argument("--whole", action="store_true", help="also as one program of Fovea, by torch-mlir")
    for option, value in dict(layers=2, width=256, heads=8, tokens=512, batch=1, rounds=11).items():
        parser.add_argument(f"--{option}", type=int, default=value)
    options = parser.parse_args()
    unknown = set(options.models).difference(MODELS)
    if unknown:
        parser.error(f"MODEL: found {', '.join(sorted(unknown))}, needed some of {', '.join(MODELS)}")
    options.inductor |= options.rest == "inductor"
    torch.set_num_threads(1)
    fovea.set_num_threads(1)
    columns = ["model", "found", "error", "Fovea"]
    if options.inductor:
        columns.append("inductor alone")
    if options.whole:
        columns.append("whole")
        columns += ["inductor compiles"] * options.inductor + ["whole compiles"]
    print(f"{options.layers} layers, {options.width} wide, {options.heads} heads, {options.tokens} tokens, batch {options.batch}")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for name in options.models or CONFIGURATIONS:
        print(f"| {' | '.join(run(name, options))} |", flush=True)


if __name__ == "__main__":
    main()
