"""A data set's metadata as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.text import html_line, html_table, time_unit

CLASSES_SHOWN = 20


def view_metadata(
    splits: Mapping[str, Any],
    features: Mapping[str, FeatureSpec],
    classes: Sequence[str],
    clips: int | None,
) -> str:
    """Returns tables of the splits and the features, and the first classes.

    Parameters
    ----------
    splits : mapping
        Name to :class:`.SplitEntry`.
    clips : int or None
        The number of accepted clips; None for a data set of elements.
    """
    unit, unit_s = time_unit(entry.seconds for entry in splits.values())
    header = ("split", "examples", "shards", *(("clips", unit) if clips else ()))
    rows = [
        (
            name,
            entry.examples,
            len(entry.shards),
            *((entry.clips, f"{entry.seconds / unit_s:.2f}") if clips else ()),
        )
        for name, entry in splits.items()
    ]
    parts = [html_table(header, rows)]
    if classes:
        more = len(classes) - CLASSES_SHOWN
        named = ", ".join(classes[:CLASSES_SHOWN])
        tail = f" and {more:,} more" if more > 0 else ""
        parts.append(html_line(f"{len(classes):,} classes: {named}{tail}"))
    parts.append(view_features(features))
    return "".join(parts)


def view_features(features: Mapping[str, FeatureSpec]) -> str:
    """Returns a table of the features of an example."""
    rows = [
        (name, spec.dtype, _shape(spec), spec.description)
        for name, spec in features.items()
    ]
    return html_table(("feature", "type", "shape", "from"), rows)


def _shape(spec: FeatureSpec) -> str:
    """The shape as text; ``?`` stands for what differs between examples."""
    if spec.shape is None:
        return "?"
    return " × ".join("?" if n is None else str(n) for n in spec.shape) or "scalar"
