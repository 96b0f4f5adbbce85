"""What :func:`beam_pipeline.api.plan` returns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from beam_pipeline.dataset.metadata import view_features
from beam_pipeline.plan.clips import Reject
from beam_pipeline.plan.summary import PlanSummary, left_out_words
from beam_pipeline.run.forecast import Forecast
from beam_pipeline.text import html_line, html_table, time_unit

REJECTS_SHOWN = 10


class _SummaryAndRejects(NamedTuple):
    summary: PlanSummary
    rejects: Sequence[Reject]


class Plan(_SummaryAndRejects):
    """A plan, and the clips that cannot be recorded, as far as headers show.

    It is a pair, ``summary, rejects = plan(...)``, with one more attribute.

    Attributes
    ----------
    summary : PlanSummary
        Splits, shards, examples and seconds.
    rejects : sequence of Reject
        In the order of the inputs. They are on disk if they are many.
    forecast : Forecast or None
        What a run will take, if a ``sample`` was asked for.
    """

    forecast: Forecast | None

    def __new__(
        cls,
        summary: PlanSummary,
        rejects: Sequence[Reject],
        forecast: Forecast | None = None,
    ) -> Plan:
        plan = super().__new__(cls, summary, rejects)
        plan.forecast = forecast
        return plan

    def __repr__(self) -> str:
        splits = ", ".join(f"{row[0]} {row[1]:,}" for row in self._splits())
        clips = self.summary.listing.clips
        return (
            f"<Plan: examples of {clips:,} clips: {splits or 'none'}; "
            f"{len(self.rejects):,} rejects>"
        )

    def _repr_html_(self) -> str:
        parts = []
        if self.summary.example_format is not None:
            header = ("split", "examples", self._unit()[0], "shards")
            parts += [
                html_table(header, self._splits()),
                view_features(self.summary.example_format.features.specs),
            ]
        listing = self.summary.listing
        left_out = left_out_words(self.summary.left_out)
        parts.append(
            html_line(
                f"{listing.clips:,} clips, {listing.ignored:,} files ignored, "
                f"{len(self.rejects):,} rejects" + (left_out and f", {left_out}")
            )
        )
        if self.forecast is not None:
            found = self.forecast
            parts.append(
                html_line(
                    f"forecast: {found.bytes / 1e6:,.1f} MB of shards, "
                    f"{found.seconds / 60:,.1f} min of one worker"
                )
            )
        first = [(r.filepath, r.reason) for r in islice(self.rejects, REJECTS_SHOWN)]
        if first:
            parts.append(html_table(("rejected", "reason"), first))
        return "".join(parts)

    def _splits(self) -> list[tuple[str, int, str, int]]:
        _, unit_s = self._unit()
        rows = []
        for name, layout in self.summary.layouts.items():
            examples, seconds = self.summary.kept(name)
            rows.append((name, examples, f"{seconds / unit_s:.2f}", layout.shards))
        return rows

    def _unit(self) -> tuple[str, int]:
        return time_unit(self.summary.kept(name)[1] for name in self.summary.layouts)
