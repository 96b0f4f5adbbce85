"""Features: what an example holds, and how it is made from windows.

One spec drives the encoder, the decoder and the reader, and stands in the metadata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError, TransformError
from beam_pipeline.examples.event_targets import EventRule
from beam_pipeline.examples.spec import (
    BYTES_LIST,
    DESCRIPTIONS,
    FLOAT_LIST,
    INT64_LIST,
    FeatureSpec,
    dtype_name,
    encoding_of,
)
from beam_pipeline.recipe.example_sections import Features
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.transforms.base import (
    Chain,
    Identity,
    Transform,
    apply_transform,
    needs_sample_rate,
    rate_after,
)
from beam_pipeline.transforms.expressions import (
    TRANSFORM,
    naming_feature,
    naming_step,
    parse_transform,
)

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class FeatureSet:
    """The transforms of a recipe and the specs of everything in an example."""

    transforms: Mapping[str, Transform]
    specs: Mapping[str, FeatureSpec] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    separator: str | None = None
    events: EventRule | None = None

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        *,
        sample_rate_hz: int | None,
        win_len: int,
        channels: int | None,
        classes: Sequence[str] = (),
        columns: Sequence[tuple[str, str]] = (),
    ) -> FeatureSet:
        """Runs every transform once on silence and takes down what came out.

        Parameters
        ----------
        sample_rate_hz : int or None
            None where clips differ: then no transform may need it.
        channels : int or None
            None for mono windows.
        classes : sequence of str
            The classes; empty where examples have none.
        columns : sequence of (str, str)
            Name and type of the extra columns, then of the targets.

        Raises
        ------
        RecipeError
            If a transform raises or returns something that cannot be stored.
        """
        transforms = resolve_transforms(recipe.features, recipe.audio.dtype)
        shape = (win_len,) if channels is None else (channels, win_len)
        specs = [
            check_transform(
                name,
                recipe.features.expressions.get(name, ""),
                transform,
                shape,
                sample_rate_hz,
            )
            for name, transform in transforms.items()
        ]
        rule = None
        if recipe.events.source is not None:
            rule = EventRule.of(
                recipe.events, classes, {spec.name: spec for spec in specs}
            )
            specs += rule.specs()
            classes = ()  # those of clips
        several = recipe.labels.separator is not None
        texts = ["filepath", *(["class"] if classes and not several else [])]
        numbers = [
            "index",
            "win_start_idx",
            "fs",
            *(["copy"] if recipe.augmentation.copies else []),
        ]
        targets = recipe.columns.targets
        if classes and not several and not targets:
            numbers.append("target")
        specs += [
            FeatureSpec(n, "string", (), BYTES_LIST, DESCRIPTIONS[n]) for n in texts
        ]
        specs += [
            FeatureSpec(n, "int64", (), INT64_LIST, DESCRIPTIONS[n]) for n in numbers
        ]
        if classes and several:
            hot = (len(classes),)
            text = "1 for each class of the clip, in the order of the list of classes"
            specs.append(FeatureSpec("labels", "int64", hot, INT64_LIST, text))
        if targets:
            size = () if len(targets) == 1 else (len(targets),)
            text = f"column {', '.join(targets)}"
            specs.append(FeatureSpec("target", "float32", size, FLOAT_LIST, text))
        extra = columns[: len(columns) - len(targets)]
        specs += [
            FeatureSpec(name, dtype, (), _COLUMN_ENCODING[dtype], f"column {name}")
            for name, dtype in extra
        ]
        named = {s.name: s for s in sorted(specs, key=lambda s: s.name)}
        return cls(
            transforms, named, tuple(n for n, _ in extra), recipe.labels.separator, rule
        )

    def of_clip(
        self,
        label: str | None,
        values: Sequence[Any],
        numbers: Mapping[str, int],
    ) -> dict[str, Any]:
        """What all examples of a clip share: class, target, and extra columns.

        Parameters
        ----------
        values : sequence
            Of the extra columns, then of the targets.
        numbers : mapping
            Each class's number.
        """
        shared: dict[str, Any] = dict(zip(self.extra, values, strict=False))
        targets = values[len(self.extra) :]
        if label is not None and self.separator is not None:
            hot = np.zeros(len(numbers), np.int64)
            hot[[numbers[part] for part in label.split(self.separator)]] = 1
            shared["labels"] = hot
        elif label is not None:
            shared["class"] = label
            shared["target"] = numbers[label]
        if targets:
            several = len(targets) > 1
            shared["target"] = np.array(targets, "f4") if several else targets[0]
        return shared

    def apply(
        self,
        windows: FloatArray,
        sample_rate_hz: int,
        filepath: str,
        starts: npt.NDArray[np.int64],
    ) -> dict[str, npt.NDArray[Any]]:
        """Every feature of a block of windows, each of shape ``(n, *spec.shape)``.

        Raises
        ------
        TransformError
            If a transform raises, or returns what its spec does not say; it names the
            feature and where the window starts.
        """
        values = {}
        for name, transform in self.transforms.items():
            try:
                values[name] = self._apply(name, transform, windows, sample_rate_hz)
            except (Exception, SystemExit) as error:  # a person's code
                at = self._first_failure(name, transform, windows, sample_rate_hz)
                where = (
                    f"the window at frame {starts[at]}"
                    if at is not None
                    else (
                        f"the windows from frame {starts[0]} to {starts[-1]} together"
                    )
                )
                raise TransformError(
                    filepath,
                    f"feature {name}, {where}: {type(error).__name__}: {error}",
                ) from error
        return values

    def _apply(
        self, name: str, transform: Transform, windows: FloatArray, sample_rate_hz: int
    ) -> npt.NDArray[Any]:
        spec = self.specs[name]
        values = _native(apply_transform(transform, windows, sample_rate_hz))
        expected = (len(windows), *spec.shape)
        is_text = spec.dtype == "string"
        same_type = values.dtype.kind in "SU" if is_text else values.dtype == spec.dtype
        if values.shape != expected or not same_type:
            raise ValueError(
                f"returned {values.dtype} {values.shape}, but on a silent window it "
                f"was {spec.dtype} {expected}",
            )
        return values

    def _first_failure(
        self, name: str, transform: Transform, windows: FloatArray, sample_rate_hz: int
    ) -> int | None:
        """Which window of a block fails alone."""
        for at in range(len(windows)):
            try:
                self._apply(name, transform, windows[at : at + 1], sample_rate_hz)
            except (Exception, SystemExit):  # that it does is all that is asked
                return at
        return None


_COLUMN_ENCODING = {"string": BYTES_LIST, "int64": INT64_LIST, "float32": FLOAT_LIST}


def resolve_transforms(features: Features, dtype: str) -> dict[str, Transform]:
    """The recipe's transforms by name; the signal itself where it names none."""
    if not features.expressions:
        return {"signal": Identity(dtype=dtype)}
    transforms = {}
    for name, text in sorted(features.expressions.items()):
        with naming_feature(name):
            transforms[name] = parse_transform(text, dtype)
    return transforms


def check_transform(
    name: str,
    description: str,
    transform: Transform,
    shape: tuple[int, ...],
    sample_rate_hz: int | None,
) -> FeatureSpec:
    """Runs a transform on two silent windows; what it returns is the feature's spec."""
    with naming_feature(name):
        values = _try_on_silence(transform, description, shape, sample_rate_hz)
        axes = _axes_of(transform, values.shape[1:], sample_rate_hz or 0, shape[-1])
        return FeatureSpec(
            name,
            dtype_name(values),
            values.shape[1:],
            encoding_of(values),
            description or "the window's samples",
            axes,
        )


def _try_on_silence(
    transform: Transform,
    description: str,
    shape: tuple[int, ...],
    sample_rate_hz: int | None,
) -> npt.NDArray[Any]:
    if sample_rate_hz is None and needs_sample_rate(transform):
        raise RecipeError(
            TRANSFORM.field,
            "needs one sample rate for all clips; give --sample-rate",
            description,
        )
    silence = np.zeros((2, *shape), np.float32)
    silence.flags.writeable = False  # as the windows of a clip are
    values: npt.NDArray[Any] = silence
    rate = sample_rate_hz or 0
    try:
        for step in transform.steps if isinstance(transform, Chain) else (transform,):
            with naming_step(step, TRANSFORM):
                values = np.asarray(apply_transform(step, values, rate))
                rate = rate_after(step, rate)
    except RecipeError:
        raise
    except (Exception, SystemExit) as error:  # a person's code: what it raises is told
        raise RecipeError(
            TRANSFORM.field,
            f"fails on two silent windows of shape {silence.shape}: "
            f"{type(error).__name__}: {error}",
            description,
        ) from error
    if values.shape[:1] != (2,):
        raise RecipeError(
            TRANSFORM.field,
            f"must return one row for each window: (2, ...) for windows "
            f"{silence.shape}",
            values.shape,
        )
    if values.size == 0:
        raise RecipeError(TRANSFORM.field, "returns no values", values.shape)
    return _native(values)


def _native(returned: Any) -> npt.NDArray[Any]:
    """What a transform returned, in this machine's order of bytes."""
    values = np.asarray(returned)
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _axes_of(
    transform: Transform, shape: tuple[int, ...], sample_rate_hz: int, frames: int
) -> tuple[Mapping[str, Any], ...]:
    """What a transform says of its last axes, if it has that many of that size.

    A step of one's own may have changed what the steps before it say.
    """
    axes = getattr(transform, "axes", None)
    described = tuple(axes(sample_rate_hz, frames)) if axes else ()
    last = shape[max(len(shape) - len(described), 0) :]
    fits = len(last) == len(described) and all(
        axis.get("size", size) == size
        for axis, size in zip(described, last, strict=True)
    )
    return described if fits else ()
