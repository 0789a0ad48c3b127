"""A loader in a notebook: a small table, and a sparkline of waiting.

The numbers are those of `loader.status()`; everything that is text is escaped.
"""

import html
from typing import Any

_WORK = ("read", "decode", "augment", "tensor", "compute", "queue", "sleep")
_WIDTH, _HEIGHT = 180, 24


def as_html(name: str, status: dict[str, Any]) -> str:
    """A loader as a fragment of HTML, without scripts or outside references."""
    rows = [
        ("waiting", f"{_percent(_waiting(status))} {sparkline(status['wait_shares'])}"),
        ("batches", _batches(status["batches"], status["samples"])),
        ("ready", f"{status['ready_batches']} of {status['open_batches']} open"),
        ("memory", f"{_bytes(status['budget_used'])} of {_bytes(status['budget_bytes'])}"),
        ("policy", _text(": ".join(filter(None, (status["policy"], status["reason"]))))),
        ("knobs", _text(_knobs(status["knobs"]))),
    ]
    cells = "".join(
        f"<tr><th style='text-align:left'>{key}</th><td style='text-align:left'>{value}</td></tr>"
        for key, value in rows
    )
    return (
        f"<div><code>{_text(name)}</code><br>{_text(status['verdict'])}"
        f"<table>{cells}</table>{_stages(status['stages'], status['idle_s'])}</div>"
    )


def sparkline(shares: list[float]) -> str:
    """The last seconds, oldest left, full height being all of a second; '' for too few."""
    if len(shares) < 2:
        return ""
    step = _WIDTH / (len(shares) - 1)
    points = " ".join(
        f"{i * step:.1f},{1 + (_HEIGHT - 2) * (1 - min(max(share, 0), 1)):.1f}"
        for i, share in enumerate(shares)
    )
    return (
        f"<svg width='{_WIDTH}' height='{_HEIGHT}' viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' "
        f"aria-label='share of waiting, last {len(shares)} s'>"
        f"<polyline points='{points}' fill='none' stroke='currentColor' stroke-width='1.5'/></svg>"
    )


def _waiting(status: dict[str, Any]) -> float | None:
    """Of the loop's time, without the first batch."""
    first = status["first_batch_s"]
    waited = status["stages"]["wait"]["total_s"] - first
    whole = waited + status["stages"]["step"]["total_s"]
    return max(waited, 0.0) / whole if whole > 0 else None


def _stages(stages: dict[str, Any], idle_s: float) -> str:
    work = [name for name in _WORK if name in stages]
    spent = {name: stages[name]["total_s"] for name in work} | {"(idle)": idle_s}
    whole = sum(spent.values())
    head = "".join(f"<th>{title}</th>" for title in ("stage", "mean", "p95", "workers' time"))
    lines = []
    for name, seconds in spent.items():
        stage = stages.get(name, {"mean_s": None, "p95_s": None})
        share = seconds / whole if whole > 0 else None
        values = (name, _time(stage["mean_s"]), _time(stage["p95_s"]), _percent(share))
        lines.append("<tr>" + "".join(f"<td>{value}</td>" for value in values) + "</tr>")
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def _batches(batches: int, samples: int | None) -> str:
    """Where an iterable dataset is batched, only workers know how many samples there are."""
    return f"{batches:,}" if samples is None else f"{batches:,} ({samples:,} samples)"


def _knobs(knobs: dict[str, Any]) -> str:
    return ", ".join(
        f"{name}={knob['value']:g}{' (pinned)' if knob['pinned'] else ''}"
        for name, knob in knobs.items()
        if not name.startswith("share_") or knob["value"]
    )


def _text(value: str) -> str:
    return html.escape(value)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _bytes(n: float) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.0f} MB"
