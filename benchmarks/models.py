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
own; "-" where there is none; and how many attentions are raised.  The last row has geometric
means.  JAX is a language model as flax has its layers, beside jax.jit, with `--whole` alone.
"""

import argparse
import math
import os
import statistics
import time

from fovea_bench.packages import needed

with needed("torch", "transformers"):
    import plain_models
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


# Of transformers; DiT and JAX are not.
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

MODELS = [*CONFIGURATIONS, "DiT", "JAX"]


def make(name, options):
    """A model, in evaluation mode, and the arguments of a call."""
    torch.manual_seed(0)
    if name == "DiT":
        model = plain_models.DiT(options.width, options.heads, options.layers, VOCABULARY)
        steps = torch.full((options.batch,), 5)
        return model.eval(), {"latents": torch.randn(options.batch, 4, 32, 32), "steps": steps, "labels": steps}
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
    return outputs if isinstance(outputs, torch.Tensor) else outputs.last_hidden_state


def timed(function, *args, **kwargs):
    """What it returns, and the seconds of the process that it takes: what else runs on the machine matters less."""
    start = time.process_time()
    result = function(*args, **kwargs)
    return result, time.process_time() - start


def compile(model, rest):
    """The model, compiled, and of each graph the attentions that were found."""
    counts = []

    def count(module, inputs):
        counts.append(sum(node.target is _backend.attend for node in module.graph.nodes))
        return torch._dynamo.lookup_backend(rest)(module, inputs)

    return torch.compile(model, backend="fovea", options={"rest": count}), counts


def time_compilation(program):
    """The seconds that Fovea takes to compile it."""
    # The comment is why it is not found among those that are compiled already.
    return timed(fovea.compile, program.text + "// again\n", entry=program.kernel.name)[1]


def count_raised(program):
    return len(fovea._fovea.probe_attention(program.text, program.kernel.name)[1])


def import_whole(model, inputs):
    """The model as one program, and a call of it; or None twice."""
    try:
        program = fovea.import_torch(model, **inputs)
    except (ValueError, fovea.FoveaError) as error:
        print(f"{type(model).__name__}: {str(error).splitlines()[0]}")
        return None, None

    def call(**inputs):
        found = program(**inputs)
        return torch.from_numpy(found[0] if isinstance(found, tuple) else found)

    return program, call


def measure(calls, rounds):
    """Of each, medians of how many times as fast as the first it is."""
    seconds = [[] for _ in calls]
    for _ in range(rounds):
        for call, each in zip(calls, seconds):
            each.append(timed(call)[1])
    return [statistics.median(first / own for first, own in zip(seconds[0], each)) for each in seconds]


@torch.no_grad()
def run(name, options):
    """The cells of a model by their column: texts, and ratios."""
    torch._dynamo.reset()
    fovea.torch.explain_fallbacks(clear=True)
    if name == "JAX":
        return run_jax(options)
    try:
        model, inputs = make(name, options)
    except (ImportError, ValueError) as error:
        return {"model": name, "found": str(error).split(".")[0]}
    expected = find_result(model(**inputs))
    compiled, counts = compile(model, options.rest)
    calls = {"eager": lambda: model(**inputs), "Fovea": lambda: compiled(**inputs)}
    found = [find_result(compiled(**inputs))]
    row = {"model": name}
    if options.inductor:
        alone = torch.compile(model, backend="inductor")
        row["inductor compiles"] = f"{timed(alone, **inputs)[1]:.1f} s"
        calls["inductor alone"] = lambda: alone(**inputs)
    if options.whole:
        program, whole = import_whole(model, inputs)
        if program is not None:
            row["whole compiles"] = f"{time_compilation(program):.1f} s"
            row["raised"] = str(count_raised(program))
            found.append(whole(**inputs))
            calls["whole"] = lambda: whole(**inputs)
    left = sum(each.calls for each in fovea.torch.explain_fallbacks())
    row["found"] = f"{sum(counts)} of {sum(counts) + left}"
    row["error"] = f"{max(relative_error(each, expected) for each in found):.1e}"
    row |= dict(zip(calls, measure(calls.values(), options.rounds)))
    if "whole" in row and options.inductor:
        row["of inductor"] = row["whole"] / row["inductor alone"]
    return row


def run_jax(options):
    """The row of a function of JAX, whose only peer is jax.jit."""
    # Before JAX starts its threads.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    import jax
    import numpy as np

    import fovea.jax

    model, examples = plain_models.make_jax(options, VOCABULARY)
    jitted = jax.jit(model)
    expected, seconds = timed(lambda: jax.block_until_ready(jitted(*examples)))
    program = fovea.import_jax(model, *examples)
    inputs = [np.asarray(each) for each in jax.tree_util.tree_leaves(examples)]
    calls = {"eager": lambda: jax.block_until_ready(jitted(*examples)), "whole": lambda: program(*inputs)}
    error = relative_error(torch.from_numpy(program(*inputs)), torch.from_numpy(np.array(expected)))
    row = {"model": "JAX", "error": f"{error:.1e}", "raised": str(count_raised(program))}
    row |= {"inductor compiles": f"{seconds:.1f} s", "whole compiles": f"{time_compilation(program):.1f} s"}
    row |= dict(zip(calls, measure(calls.values(), options.rounds)))
    return row | {"of inductor": row["whole"]}


def relative_error(found, expected):
    return float((found - expected).abs().max() / expected.abs().max())


def average(rows, column):
    """The geometric mean, and of how many rows where some have none."""
    ratios = [row[column] for row in rows if isinstance(row.get(column), float)]
    if not ratios:
        return ""
    mean = math.exp(statistics.mean(map(math.log, ratios)))
    return f"{mean:.2f}x" + (f" of {len(ratios)}" if len(ratios) < len(rows) else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; all by default")
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
    columns = ["model", "found", "raised", "error", "Fovea", "inductor alone", "whole", "of inductor"]
    columns += ["inductor compiles", "whole compiles"]
    hidden = set() if options.inductor else {"inductor alone", "of inductor", "inductor compiles"}
    if not options.whole:
        hidden |= {"raised", "whole", "of inductor", "inductor compiles", "whole compiles"}
    columns = [column for column in columns if column not in hidden]
    print(f"{options.layers} layers, {options.width} wide, {options.heads} heads, {options.tokens} tokens, batch {options.batch}")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    rows = []
    for name in options.models or MODELS:
        if name == "JAX" and not options.whole:
            continue
        rows.append(run(name, options))
        cells = (rows[-1].get(column, "-") for column in columns)
        print(f"| {' | '.join(f'{cell:.2f}x' if isinstance(cell, float) else cell for cell in cells)} |", flush=True)
    if len(rows) > 1:
        print(f"| {' | '.join(['geometric mean', *(average(rows, column) for column in columns[1:])])} |")


if __name__ == "__main__":
    main()
