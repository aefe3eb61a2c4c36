# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table and the JSON file of a run."""

import math
import statistics

from . import measure

_HEADER = (
    "work", "time", "before / this", "GFLOP/s", "of peak", "of copy", "in and out", "extra memory",
    "error", "dense / this", "PyTorch / this", "NumPy / this", "SciPy / this", "target", "reached",
)  # fmt: skip


def duration(seconds):
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def memory(count):
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def percent(fraction):
    return f"{100 * fraction:.1f} %"


def factor(ratio):
    return f"{ratio:.3g}x"


def _span(values, form):
    if values["min"] == values["max"]:
        return form(values["median"])
    return f"{form(values['median'])} ({form(values['min'])} .. {form(values['max'])})"


_CLOCKS = {
    "wall": "the time that passes",
    "cpu": "the time of the thread where there is one, otherwise the time that passes",
}

_FORMS = {
    "fraction_of_peak": ("of peak", percent),
    "fraction_of_copy": ("of the copy bandwidth", percent),
    "extra_bytes": ("extra memory", memory),
    "call_seconds": ("for each call", duration),
    "extra_bytes_per_thread": ("beyond summaries, per thread", memory),
    "compile_seconds": ("to compile", duration),
    "cache_hit_seconds": ("from the cache", duration),
    "ratio": ("", factor),
}


def judge(target, values):
    """Target, what was reached, and whether that is enough."""
    label, form = _FORMS[target.metric]
    relation = ">=" if target.at_least is not None else "<="
    wanted = f"{relation} {form(target.bound)} {label}".strip()
    if values is None:
        return {"target": wanted, "reached": "not measured", "is_reached": False}
    reached = target.is_reached(values["median"])
    text = form(values["median"]) + ("" if reached else " MISSED")
    return {"target": wanted, "reached": text, "is_reached": reached, "values": values}


def _dense_like(measurement, found):
    """Dense attention of the same size, per head, on as many threads."""
    workload = measurement.row.workload
    if workload.op != "fast_multipole":
        return None
    for other in found.values():
        dense = other.row.workload
        if (
            dense.op == "dense" and other.row.kind == "kernel" and other.rounds
            and not other.failure and other.threads == measurement.threads
            and dense.window is None
            and all(
                getattr(dense, name) == getattr(workload, name)
                for name in ("type", "n", "keys", "width", "value_width", "causal")
            )
        ):  # fmt: skip
            heads = workload.batch * workload.heads / (dense.batch * dense.heads)
            return other.seconds()["median"] * heads
    return None


def rows(suite, found):
    """Everything about each row, as it goes into the JSON file."""
    entries = []
    for row in suite.rows:
        measurement = found[row.id]
        workload = row.workload
        entry = {
            "id": row.id,
            "title": row.title,
            "kind": row.kind,
            "threads": measurement.threads,
            "workload": row.fields,
            "passed": measurement.failure is None,
            "targets": [judge(t, measurement.metric(t.metric)) for t in row.targets],
        }
        entries.append(entry)
        if measurement.failure:
            entry["failure"] = measurement.failure
            continue
        if measurement.ratios:
            entry["before_ratio"] = measure.spread(measurement.ratios)
        if row.kind != "kernel":
            entry.update(measurement.rounds[-1])
            continue
        entry["error"], entry["error_bound"] = measurement.error, measurement.error_bound
        entry["seconds"] = seconds = measurement.seconds()
        for name in ("gflops", "fraction_of_peak", "peak_gflops", "fraction_of_copy"):
            entry[name] = measurement.metric(name)
        entry["runs"] = sum(measurement.collect("runs"))
        entry["useful_gflop"] = measurement.rounds[-1].get("useful_gflop")
        for name in ("bytes", "extra_bytes", "beyond_summaries", "peak_scratch_bytes",
                     "peak_allocated_bytes"):  # fmt: skip
            entry[name] = max(measurement.collect(name))
        entry["summary_bytes"] = workload.summary_bytes()
        dense = _dense_like(measurement, found)
        entry["dense_ratio"] = dense / seconds["median"] if dense else None
        for library, times in measurement.baselines.items():
            entry[f"{library}_seconds"] = times and statistics.median(times)
            entry[f"{library}_ratio"] = times and statistics.median(times) / seconds["median"]
        entry["rounds"] = measurement.rounds
    return entries


def _judge_or_say(target, values):
    if target:
        return judge(target, values)
    return {"target": "", "is_reached": True} | ({"values": values} if values else {})


def comparisons(suite, found):
    return [
        {"title": c.title, "metric": c.metric, "of": c.of, "to": c.to, "of_times": c.of_times}
        | _judge_or_say(c.target, measure.compare(c, found))
        for c in suite.comparisons
    ]


def _cells(entry):
    targets = ["; ".join(t[name] for t in entry["targets"]) for name in ("target", "reached")]
    empty = [""] * (len(_HEADER) - 5)
    before = _span(entry["before_ratio"], factor) if "before_ratio" in entry else ""
    if not entry["passed"]:
        return [entry["title"], "FAILED", "", *empty, *targets]
    if entry["kind"] == "call":
        return [entry["title"], _span(entry["call_seconds"], duration), before, *empty, *targets]
    if entry["kind"] == "compile":
        text = (
            _span(entry["compile_seconds"], duration)
            + ", from the cache " + duration(entry["cache_hit_seconds"]["median"])
        )  # fmt: skip
        return [entry["title"], text, before, *empty, *targets]

    def ratio(name):
        value = entry.get(name)
        return factor(value) if value else ""

    def share(name):
        return _span(entry[name], percent) if entry[name] else ""

    return [
        entry["title"], _span(entry["seconds"], duration), before,
        f"{entry['gflops']['median']:.4g}" if entry["gflops"] else "", share("fraction_of_peak"),
        share("fraction_of_copy"), memory(entry["bytes"]), memory(entry["extra_bytes"]),
        "" if entry["error"] is None else f"{entry['error']:.1e}", ratio("dense_ratio"),
        ratio("torch_ratio"), ratio("numpy_ratio"), ratio("scipy_ratio"), *targets,
    ]  # fmt: skip


def table(header, lines):
    """Markdown with padded columns; columns without content are left out."""
    kept = [i for i in range(len(header)) if any(line[i] for line in lines)]
    cells = [[line[i].replace("|", "\\|") for i in kept] for line in [list(header), *lines]]
    widths = [max(len(line[i]) for line in cells) for i in range(len(kept))]
    out = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths)) + " |" for line in cells]
    out.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(out)


def peaks_text(peaks):
    lines = []
    for name, unit, what in (
        ("f32_gflops", "GFLOP/s", "multiply-adds, f32"),
        ("f64_gflops", "GFLOP/s", "multiply-adds, f64"),
        ("bf16_gflops", "GFLOP/s", "dot products, bf16"),
        ("copy_gbytes", "GB/s", "copy, read and written"),
    ):
        if name not in peaks:
            continue
        parts = [
            f"{where}: {_span(peaks[name][key], lambda x: f'{x:.4g}')} {unit}"
            for key, where in (("one", "one core"), ("all", f"{peaks['threads']} cores"))
            if key in peaks[name]
        ]
        lines.append(f"- {what}: " + "; ".join(parts))
    return "\n".join(lines)


def markdown(report):
    machine = report["machine"]
    facts = [
        f"- machine: {machine['cpu']}, {machine['cpus']} CPUs, {machine['system']}; "
        f"code for {report['peaks']['cpu']}",
        f"- commit {machine['commit']}, {machine['time']}, "
        f"{machine['build'].get('CMAKE_BUILD_TYPE', 'unknown')} build, "
        f"pinned to CPUs {machine['affinity']}, load {machine['load'][0]:.2f} before",
        "- clock: " + _CLOCKS[report["clock"]],
        f"- command: `{report['command']}`",
    ]
    parts = [
        f"# Benchmarks: {report['suite']}",
        "\n".join(facts),
        "Peaks, median (least .. greatest):\n\n" + peaks_text(report["peaks"]),
        table(_HEADER, [_cells(entry) for entry in report["rows"]]),
    ]
    failures = [f"- {e['title']}: {e['failure']}" for e in report["rows"] if not e["passed"]]
    if failures:
        parts.append("Failures:\n\n" + "\n".join(failures))
    if report["comparisons"]:
        lines = [
            [c["title"], _span(c["values"], factor) if "values" in c else "not measured",
             c["target"], ("yes" if c["is_reached"] else "MISSED") if c["target"] else ""]
            for c in report["comparisons"]
        ]  # fmt: skip
        parts.append(table(("comparison", "ratio", "target", "reached"), lines))
    return "\n\n".join(parts) + "\n"


def paired(entries):
    """How many times as long the build before took, over all rows."""
    ratios = {e["title"]: e["before_ratio"]["median"] for e in entries if "before_ratio" in e}
    if not ratios:
        return "Nothing was measured with both builds.\n"
    mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
    slowest = min(ratios, key=ratios.get)
    return (
        f"Before over this, {len(ratios)} rows: {factor(mean)} on geometric average, "
        f"{factor(ratios[slowest])} for the slowest ({slowest}).\n"
    )
