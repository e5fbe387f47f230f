"""The benchmarks' report: one JSON with every figure, one table on the terminal, one chart."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One measure: ours, the peer's (if there is one), their ratio, and the goal that the ratio or value must meet.

    `better` is "higher" or "lower"; `goal` applies to `ratio` when there is a peer, else to `ours`; None: only told.
    """

    name: str
    unit: str
    ours: float
    peer: float | None
    peer_name: str
    better: str
    goal: float | None

    @property
    def ratio(self) -> float:
        return self.ours / self.peer if self.peer else self.ours

    @property
    def is_met(self) -> bool:
        if self.goal is None:
            return True
        return self.ratio >= self.goal if self.better == "higher" else self.ratio <= self.goal


def print_table(figures: list[Figure]) -> None:
    print(f"\n{'measure':44} {'streamlake':>14} {'peer':>14}  {'ratio':>7}  goal")
    for figure in figures:
        peer = f"{figure.peer:,.1f}" if figure.peer is not None else "-"
        ratio = f"{figure.ratio:.2f}" if figure.peer is not None else "-"
        sign = ">=" if figure.better == "higher" else "<="
        met = "met" if figure.is_met else "MISSED"
        goal = "-" if figure.goal is None else f"{sign} {figure.goal:g} {met}"
        print(
            f"{figure.name:44} {figure.ours:14,.1f} {peer:>14}  {ratio:>7}  {goal}"
            f"  [{figure.unit}; {figure.peer_name}]"
        )


def write_report(folder: Path, figures: list[Figure], runs: dict[str, object]) -> None:
    """`report.json` with the figures and the raw runs, `report.png` with the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    known = folder / "report.json"
    before = json.loads(known.read_text()) if known.exists() else {"figures": [], "runs": {}}
    names = {figure.name for figure in figures}
    kept = [Figure(**obj) for obj in before["figures"] if obj["name"] not in names]
    everything = kept + figures
    report = {
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "pyspark": version("pyspark"),
        },
        "figures": [asdict(figure) for figure in everything],
        "runs": _merged(before["runs"], _without_places(runs)),
    }
    known.write_text(json.dumps(report, indent=1) + "\n")
    draw(folder / "report.png", everything)


def _merged(before: dict[str, Any], runs: dict[str, Any]) -> dict[str, Any]:
    """Newer runs in the place of older ones; of a benchmark of which only a part was run, the rest stays."""
    known = {name: before.get(name) for name in runs}
    parts = {
        name: {**known[name], **run} if isinstance(known[name], dict) and isinstance(run, dict) else run
        for name, run in runs.items()
    }
    return {**before, **parts}


def _without_places(raw: Any) -> Any:
    """The raw runs, without where on this machine their tables were."""
    if isinstance(raw, dict):
        return {key: _without_places(value) for key, value in raw.items() if key != "location"}
    return [_without_places(each) for each in raw] if isinstance(raw, list) else raw


def draw(path: Path, figures: list[Figure]) -> None:
    """One pair of bars per figure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = 3
    rows = -(-len(figures) // columns)
    canvas, axes = pyplot.subplots(rows, columns, figsize=(5 * columns, 3.2 * rows), squeeze=False)
    for at, figure in enumerate(figures):
        axis = axes[at // columns][at % columns]
        labels, values = ["streamlake"], [figure.ours]
        if figure.peer is not None:
            labels.append(figure.peer_name)
            values.append(figure.peer)
        elif figure.goal is not None:
            axis.axhline(figure.goal, color="grey", linestyle="--", linewidth=1)
        bars = axis.bar(labels, values, color=["#1f77b4", "#c7c7c7"][: len(values)])
        axis.bar_label(bars, labels=[_readable(value) for value in values])
        verdict = f"{figure.ratio:.2f} x" if figure.peer is not None else _readable(figure.ours)
        sign = "at least" if figure.better == "higher" else "at most"
        goal = "" if figure.goal is None else f" (goal: {sign} {_readable(figure.goal)})"
        axis.set_title(
            f"{figure.name}: {verdict}{goal}\n{figure.better} is better, {figure.unit}",
            fontsize=9,
        )
        axis.ticklabel_format(axis="y", style="plain")
        axis.margins(y=0.2)
        axis.tick_params(labelsize=8)
    for spare in axes.flat[len(figures) :]:
        spare.axis("off")
    canvas.tight_layout()
    canvas.savefig(path, dpi=90)
    pyplot.close(canvas)


def _readable(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:,.3g}"
