"""The section of a recipe about windows: which are cut, and of which clips."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from beam_pipeline.errors import RecipeError
from beam_pipeline.parameters import (
    Choice,
    Declared,
    Flag,
    Number,
    WholeNumber,
)
from beam_pipeline.recipe.fields import Steps, changed_options, check_one_of, option

# The win_len for which a window is a whole clip.
WHOLE_CLIP = "clip"
TAILS = ("drop", "pad", "overlap")
AT_GRID, AT_EVENTS, AT_ONSETS = "grid", "events", "onsets"
# The placement that needs no hop; opening a data set must not import others by name.
_PEAKS = "peaks"
SECONDS = Number(is_positive=True, unit="seconds")
SHORT_CLIPS = ("reject", "skip", "pad")
_OF_CLIPS = ("max_windows", "random_starts")
_OF_THE_GRID = ("hop", "hop_seconds", "tail", *_OF_CLIPS)


@dataclass(frozen=True, kw_only=True)
class Windows(Declared):
    """Which windows are cut out of a clip; lengths in frames at the output rate."""

    win_len: int | str | None = option(
        None,
        WholeNumber(words=(WHOLE_CLIP,)),
        "frames in a window; or clip, for one example of each clip, with all its "
        "frames",
        "FRAMES|clip",
    )
    win_seconds: float | None = option(
        None, SECONDS, "or: seconds in a window", "SECONDS"
    )
    hop: int | None = option(
        None,
        WholeNumber(),
        "frames from one window's start to the next; default: the window's length",
        "FRAMES",
    )
    hop_seconds: float | None = option(
        None,
        SECONDS,
        "or: seconds from one window's start to the next",
        "SECONDS",
    )
    tail: str = option(
        "drop",
        Choice(TAILS),
        "what becomes of frames after the last whole window: drop them, pad them with "
        "zeros to one more window, or overlap: one more window that ends with the clip",
    )
    max_windows: int | None = option(
        None,
        WholeNumber(),
        "largest number of windows in a clip; default: no limit",
        "N",
    )
    random_starts: bool = option(
        False,
        Flag(),
        "divide each clip into equal parts, one for each window, and draw the window's "
        "start at random (seeded) from its part",
    )
    keep: str = option(
        "",
        Steps("energy(above_db=-50)"),
        "record only the windows that pass this selection: energy(above_db=-50); the "
        "others are counted",
        "EXPR",
    )

    mark_padding: bool = option(
        False,
        Flag(),
        "with tail pad: store valid_frames in each example, the number of frames "
        "before the padding, and leave padding out of the statistics",
    )
    min_seconds: float | None = option(
        None,
        SECONDS,
        "leave out clips that are shorter, and count them; default: no limit",
        "SECONDS",
    )
    max_seconds: float | None = option(
        None,
        SECONDS,
        "leave out clips that are longer, and count them; default: no limit",
        "SECONDS",
    )
    short_clips: str | None = option(
        None,
        Choice(SHORT_CLIPS),
        "what becomes of clips that are shorter than a window: reject them, skip them "
        "(leave them out, and count them), or pad them with zeros to one window; "
        "default: reject, with tail pad: pad",
    )

    at: str = option(
        AT_GRID,
        Steps("peaks(above_db=-40)", may_be_empty=False),
        "where windows are: on a grid, every hop; one around the middle of each of the "
        "clip's events; one from the onset of each event; one around each of the "
        "loudest moments: peaks(above_db=-40,min_gap_s=0.5); or over each passage "
        "between silences: sounds(above_db=-40,min_gap_s=0.2). The last two decode "
        "each clip once more before anything is planned",
        "grid|events|onsets|EXPR",
        name="windows_at",
    )

    def check(self) -> None:
        """Checks limits against each other, and what decides where windows are."""
        if (self.min_seconds or 0.0) > (self.max_seconds or math.inf):
            raise RecipeError(
                "max_seconds",
                f"must be at least `min_seconds` ({self.min_seconds:g})",
                self.max_seconds,
            )
        check_one_of(
            {"win_len": self.win_len, "win_seconds": self.win_seconds},
            needed="the length of a window",
        )
        check_one_of({"hop": self.hop, "hop_seconds": self.hop_seconds})
        if self.are_clips:
            unused = (*_OF_THE_GRID, "mark_padding", "short_clips", "windows_at")
            self._check_unused(unused, "`win_len` is clip")
        elif self.at != AT_GRID:
            has_hop = self.placement and self.at.partition("(")[0].strip() != _PEAKS
            self._check_unused(
                _OF_CLIPS if has_hop else _OF_THE_GRID, f"`windows_at` is {self.at}"
            )

    @property
    def are_clips(self) -> bool:
        """Whether there is one window for each clip, of the clip's length."""
        return self.win_len == WHOLE_CLIP

    @property
    def are_at_events(self) -> bool:
        """Whether there is one window for each event."""
        return self.at in (AT_EVENTS, AT_ONSETS)

    @property
    def placement(self) -> str | None:
        """The expression that places windows by the samples of a clip, if there is one.

        See :mod:`beam_pipeline.transforms.select`.
        """
        return None if self.at == AT_GRID or self.are_at_events else self.at

    def leaves_out_by_length(self) -> bool:
        """Whether clips are left out because of their length."""
        limits = (self.min_seconds, self.max_seconds)
        return limits != (None, None) or self.short_clips == "skip"

    def _check_unused(self, names: Iterable[str], why: str) -> None:
        """Refuses options that decide where windows are, if something else does."""
        for each in changed_options(self):
            if each.name in names:
                value = getattr(self, each.field)
                raise RecipeError(each.name, f"cannot be given, because {why}", value)
