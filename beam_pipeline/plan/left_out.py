"""Why clips are left out: they are good, but the recipe has no window for them."""

from __future__ import annotations

from beam_pipeline.examples.event_windows import NO_EVENT
from beam_pipeline.examples.windows import (
    TOO_LONG,
    TOO_SHORT,
    WindowPlan,
    too_short_or_long,
)
from beam_pipeline.recipe.window_section import AT_GRID, Windows

# A placement found no passage in it.
NO_SOUND = "no_sound"


def reasons_to_leave_out(windows: Windows) -> tuple[str, ...]:
    """Returns why a recipe may leave out clips; empty if it leaves out none."""
    lengths = (TOO_SHORT, TOO_LONG) if windows.leaves_out_by_length() else ()
    return (*lengths, *(() if windows.at == AT_GRID else (_nothing_at(windows),)))


def why_left_out(frames: int, plan: WindowPlan, windows: Windows) -> str:
    """Returns why a clip of ``frames`` frames without a window is left out.

    ``plan`` is that of the recipe's ``windows`` in the clip.
    """
    return too_short_or_long(frames, plan) or _nothing_at(windows)


def _nothing_at(windows: Windows) -> str:
    """Returns the reason of a clip with nothing that windows could be placed at."""
    return NO_SOUND if windows.placement else NO_EVENT
