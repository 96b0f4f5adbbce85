"""What all examples of a data set share, and how it follows from the corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.examples.augmentation import WindowSteps
from beam_pipeline.examples.features import FeatureSet
from beam_pipeline.examples.windows import WindowPlan
from beam_pipeline.recipe.recipe import Recipe


@dataclass(frozen=True, slots=True)
class ExampleFormat:
    """What all examples of a data set share; None where clips differ.

    ``rates_hz`` maps each output sample rate to its number of clips.
    """

    features: FeatureSet
    treatment: WindowSteps
    classes: tuple[str, ...]
    win_len: int
    hop: int
    sample_rate_hz: int | None
    channels: int | None
    rates_hz: Mapping[int, int]

    @classmethod
    def of(
        cls, corpus: Corpus, recipe: Recipe, columns: Sequence[tuple[str, str]] = ()
    ) -> ExampleFormat:
        """What a corpus looks like under a recipe.

        Raises
        ------
        RecipeError
            If clips differ in what the recipe needs to be one, or a transform does not
            work on its windows.
        InputError
            If no clip was accepted.
        """
        if not corpus.rates_hz:
            raise InputError("Not one clip can be recorded.")
        rate = _the_one(corpus.rates_hz)
        asked = recipe.windows
        by_seconds = asked.win_seconds is not None or asked.hop_seconds is not None
        if rate is None and by_seconds:
            raise RecipeError(
                "sample_rate",
                "windows in seconds have one length only at one sample rate; give "
                "--sample-rate, or --win-len and --hop",
                _listed(corpus.rates_hz, "Hz", corpus.named),
            )
        channels = None
        if recipe.audio.channels == "keep":
            channels = _the_one(corpus.channels)
            if channels is None:
                raise RecipeError(
                    "channels",
                    "keep needs the same number in every clip; mix them, or pick one",
                    _listed(corpus.channels, "channels", corpus.named),
                )
        classes = corpus.labels
        if recipe.labels.classes is not None:
            classes = recipe.labels.classes
        windows = WindowPlan.of(asked, rate or 1)
        shape = (windows.length,) if channels is None else (channels, windows.length)
        try:
            treatment = WindowSteps.of(
                asked.keep, recipe.augmentation, recipe.shards.seed, shape, rate
            )
            features = FeatureSet.of(
                recipe,
                sample_rate_hz=rate,
                win_len=windows.length,
                channels=channels,
                classes=classes,
                columns=columns,
            )
        except RecipeError as error:
            if rate is not None:
                raise
            field, problem, value = error.args
            problem += "; the clips are " + _listed(corpus.rates_hz, "Hz", corpus.named)
            raise RecipeError(field, problem, value) from error
        return cls(
            features,
            treatment,
            classes,
            windows.length,
            windows.hop,
            rate,
            channels,
            dict(sorted(corpus.rates_hz.items())),
        )


def _the_one(counts: Mapping[int, int]) -> int | None:
    return next(iter(counts)) if len(counts) == 1 else None


def _listed(
    counts: Mapping[int, int], unit: str, named: Mapping[tuple[str, int], str]
) -> str:
    return ", ".join(
        f"{n} of {value} {unit} (such as {named.get((unit, value), '?')})"
        for value, n in sorted(counts.items())
    )


@dataclass(frozen=True, slots=True)
class Corpus:
    """What is common to all accepted clips; small, whatever their number."""

    labels: tuple[str, ...] = ()
    rates_hz: Mapping[int, int] = field(default_factory=dict)  # rate -> clips
    channels: Mapping[int, int] = field(default_factory=dict)  # channels -> clips
    # Of each, a clip that has it: (unit, value) -> the first by name.
    named: Mapping[tuple[str, int], str] = field(default_factory=dict)
