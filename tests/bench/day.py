"""A day in minutes: an upsert stream of some thousand checkpoints with maintenance beside it, and without.

Figures compare the last tenth with the first, the stream's own times with and without maintenance, and a scan with that of a
freshly written copy. `day.png` has the curves, `day.json` their samples.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.bench.report import Figure

MODES = ("v3-position", "v2-position", "v2-equality")
FLAT, STORED, SCAN, PACE = 1.2, 3.0, 1.2, 1.5
"""How much the last tenth may exceed the first; storage the live bytes; a scan that of a copy; the slowest checkpoints those
without maintenance."""
CURVES = (
    ("data_files", "live data files"),
    ("delete_files", "delete files"),
    ("manifests", "manifests"),
    ("snapshots", "snapshots"),
    ("metadata_bytes", "bytes of the metadata file"),
    ("stored_over_live", "storage over live bytes"),
    ("checkpoint_ms", "checkpoint, ms (median of 50)"),
    ("commit_ms", "commit, ms"),
    ("memory_mb", "memory of the driver, MB"),
    ("open_files", "open files of the driver"),
)


def bench_day(
    work: Path,
    run: Callable[..., dict[str, Any]],
    checkpoints: int,
    modes: Sequence[str],
    folder: Path,
) -> tuple[list[Figure], dict[str, Any]]:
    """`run` runs a script and gives its result."""
    runs = {
        (mode, kind): run(
            "day_run.py", mode, kind, checkpoints, _made(work / f"day-{mode}-{kind}"), timeout_seconds=7_200
        )
        for mode in modes
        for kind in ("off", "process")
    }
    figures = [figure for mode in modes for figure in figures_of(runs[mode, "off"], runs[mode, "process"])]
    folder.mkdir(parents=True, exist_ok=True)
    known = folder / "day.json"
    named = {f"{mode} {kind}": result for (mode, kind), result in runs.items()}
    known.write_text(json.dumps(named, indent=1) + "\n")
    draw(folder / "day.png", modes, runs)
    raw = {
        name: {key: value for key, value in result.items() if key not in ("samples", "scans")}
        for name, result in named.items()
    }
    return figures, {"day": raw}


def figures_of(without: dict[str, Any], beside: dict[str, Any]) -> list[Figure]:
    """The figures of one mode."""
    mode = beside["mode"]
    samples = beside["samples"]
    found = []
    for name, words in (*CURVES, ("live_bytes", "live bytes")):
        first, last = tenths([float(each[name]) for each in samples])
        if max(first, last) > 0:
            found.append(
                Figure(f"{mode}: {words}, last tenth", "", last, first or 1.0, "first tenth", "lower", FLAT)
            )
    stored = max(float(each["stored_over_live"]) for each in samples)
    found.append(
        Figure(f"{mode}: storage over live bytes at most", "x", stored, None, "goal", "lower", STORED)
    )
    scan, copy = float(beside["scan_ms"]), float(beside["copy_scan_ms"])
    found.append(Figure(f"{mode}: scan at the end", "ms", scan, copy, "a fresh copy", "lower", SCAN))
    p99 = float(beside["checkpoint_ms"]["p99"]), float(without["checkpoint_ms"]["p99"])
    found.append(Figure(f"{mode}: checkpoint, p99", "ms", *p99, "without maintenance", "lower", PACE))
    return found


def tenths(values: Sequence[float]) -> tuple[float, float]:
    """The medians of the first tenth, once the stream is at its pace, and of the last."""
    steady = values[len(values) // 20 :]
    size = max(1, len(values) // 10)
    return statistics.median(steady[:size]), statistics.median(steady[-size:])


def draw(path: Path, modes: Sequence[str], runs: dict[tuple[str, str], dict[str, Any]]) -> None:
    """A row of curves for each mode: with maintenance, and without it beside."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = (*CURVES, ("scan_ms", "scan, ms"))
    canvas, axes = pyplot.subplots(
        len(modes), len(columns), figsize=(3.4 * len(columns), 2.8 * len(modes)), squeeze=False
    )
    for row, mode in zip(axes, modes, strict=True):
        for axis, (name, words) in zip(row, columns, strict=True):
            for kind, label, color in (
                ("process", "maintained", "#1f77b4"),
                ("off", "without maintenance", "#c7c7c7"),
            ):
                points = runs[mode, kind]["scans" if name == "scan_ms" else "samples"]
                axis.plot(
                    [each["checkpoint"] for each in points],
                    [each[name] for each in points],
                    label=label,
                    color=color,
                )
            axis.set_title(f"{mode}: {words}", fontsize=8)
            axis.set_yscale("symlog" if name in ("data_files", "delete_files", "snapshots") else "linear")
            axis.tick_params(labelsize=7)
            axis.set_ylim(bottom=0)
    axes[0][0].legend(fontsize=7)
    canvas.tight_layout()
    canvas.savefig(path, dpi=80)
    pyplot.close(canvas)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
