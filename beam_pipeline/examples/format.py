"""The format that all examples of a data set share, derived from the corpus."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.examples.features import FeatureSet
from beam_pipeline.examples.window_steps import WindowSteps
from beam_pipeline.examples.windows import WindowPlan
from beam_pipeline.inputs.column_values import Column
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage.tfrecord import LONGEST_RECORD

# For data sets whose format is made anew, which need no sizes.
GUESSED_FRAMES = 1 << 16


@dataclass(frozen=True, slots=True)
class ExampleFormat:
    """What all examples of a data set share.

    Attributes
    ----------
    features : FeatureSet
    window_steps : WindowSteps
        The selections and augmentations.
    classes : tuple of str
    win_len, hop : int or None
        Frames of a window, and from one window's start to the next. None if each
        example is a whole clip.
    sample_rate_hz, channels : int or None
        None if clips have different sample rates; None if windows are mono.
    rates_hz : mapping
        The number of clips at each output sample rate.
    longest_walk : int
        See :func:`beam_pipeline.planning.summary.longest_walk`.
    """

    features: FeatureSet
    window_steps: WindowSteps
    classes: tuple[str, ...]
    win_len: int | None
    hop: int | None
    sample_rate_hz: int | None
    channels: int | None
    rates_hz: Mapping[int, int]
    longest_walk: int = 0

    @classmethod
    def of(
        cls, corpus: Corpus, recipe: Recipe, columns: Sequence[Column] = ()
    ) -> ExampleFormat:
        """Returns the format of a corpus under a recipe.

        Parameters
        ----------
        columns : sequence of (str, ColumnType)
            The name and the type of each extra column, then of each target.

        Raises
        ------
        RecipeError
            If the recipe needs one sample rate or one number of channels and clips
            differ, or if a step fails on silent windows.
        InputError
            If no clip was accepted.
        """
        if not corpus.rates_hz:
            raise InputError("No clip can be recorded.")
        rate = _only_key(corpus.rates_hz)
        by_seconds = recipe.win_seconds is not None or recipe.hop_seconds is not None
        if rate is None and by_seconds:
            raise RecipeError(
                "sample_rate",
                "must be the same for all clips, because `win_seconds` or "
                "`hop_seconds` is given; give `sample_rate`, or give `win_len` and "
                "`hop` instead",
                corpus.listed("Hz"),
            )
        channels = None
        if recipe.channels == "keep":
            channels = _only_key(corpus.channels)
            if channels is None:
                raise RecipeError(
                    "channels",
                    "keep needs the same number of channels in every clip; give mix, "
                    "or give the number of one channel",
                    corpus.listed("channels"),
                )
        classes = corpus.labels
        if recipe.classes is not None:
            classes = recipe.classes
        windows = WindowPlan.of(recipe, rate or 1, corpus.typical_frames())
        shape = (windows.length,) if channels is None else (channels, windows.length)
        _check_window(shape, corpus)
        try:
            window_steps = WindowSteps.of(recipe, shape, rate)
            features = FeatureSet.of(recipe, shape, rate, classes, columns)
        except RecipeError as error:
            if rate is not None:
                raise
            field, problem, value = error.args
            problem += "; the clips are " + corpus.listed("Hz")
            raise RecipeError(field, problem, value) from error
        return cls(
            features,
            window_steps,
            classes,
            None if recipe.windows_are_clips else windows.length,
            None if recipe.windows_are_clips else windows.hop,
            rate,
            channels,
            dict(sorted(corpus.rates_hz.items())),
            corpus.longest_walk,
        )


def _check_window(shape: tuple[int, ...], corpus: Corpus) -> None:
    """Raises RecipeError if a window is larger than a message of protobuf.

    A file may say that it has billions of frames in a second.
    """
    length = 4 * math.prod(shape)
    if length > LONGEST_RECORD:
        raise RecipeError(
            "win_len",
            f"a window of {shape[-1]} frames takes {length} bytes, but it must take "
            f"less than {LONGEST_RECORD}; the clips are " + corpus.listed("Hz"),
            shape[-1],
        )


def _only_key(counts: Mapping[int, int]) -> int | None:
    return next(iter(counts)) if len(counts) == 1 else None


@dataclass(frozen=True, slots=True)
class Corpus:
    """A summary of all accepted clips; its size does not grow with their number.

    Attributes
    ----------
    labels : tuple of str
    rates_hz, channels : mapping
        The number of clips at each sample rate, and with each number of channels.
    named : mapping
        For each ``("Hz", rate)``, ``("channels", n)`` and ``("class", label)``, the
        first clip by name.
    frames : int
        The length of all clips together, in frames.
    longest_walk : int
        See :func:`beam_pipeline.planning.summary.longest_walk`; 0 if examples keep the
        order of the clips.
    """

    labels: tuple[str, ...] = ()
    rates_hz: Mapping[int, int] = field(default_factory=dict)
    channels: Mapping[int, int] = field(default_factory=dict)
    named: Mapping[tuple[str, int | str], str] = field(default_factory=dict)
    frames: int = 0
    longest_walk: int = 0

    def listed(self, unit: str) -> str:
        """Returns how many clips have each rate, ``Hz``, or number of ``channels``."""
        counts = self.rates_hz if unit == "Hz" else self.channels
        return ", ".join(
            f"{n} of {value} {unit} (for example {self.named.get((unit, value), '?')})"
            for value, n in sorted(counts.items())
        )

    def typical_frames(self) -> int:
        """Returns the mean length of the clips, in frames; a guess if it is unknown."""
        if not self.frames:
            return GUESSED_FRAMES
        return max(1, self.frames // sum(self.rates_hz.values()))
