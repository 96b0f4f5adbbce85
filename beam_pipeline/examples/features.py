"""Features: the values in an example, and how transforms make them from windows.

The encoder, the decoder and the reader share one spec, which is in the metadata.

Features of whole clips have sizes that depend on the length of the clip. A transform
runs on silence of two lengths, and the sizes that differ are None in the spec::

    signal     (65536,)    and (165539,)      ->  (None,)
    log_mel    (253, 64)   and (643, 64)      ->  (None, 64)
    lufs       ()          and ()             ->  ()

A transform that returns a dict gives several features::

    pitch: {"f0": ..., "voiced": ...}         ->  pitch/f0, pitch/voiced
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from beam_pipeline.arrays import STRING, Array, FloatArray, Integers
from beam_pipeline.encodings import CODECS, FLOAT_LIST, INT64_LIST, ORIGINAL, fits_shape
from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.examples.event_targets import EventRule
from beam_pipeline.examples.spec import (
    FeatureSpec,
    described,
    encoding_for,
    encoding_problem,
    merge_shapes,
    needs_shape,
)
from beam_pipeline.examples.window_steps import (
    Origins,
    WindowSteps,
    check_copies,
    required_sample_rate,
    run_on_windows,
    silent_windows,
    trying,
)
from beam_pipeline.examples.windows import WindowPlan
from beam_pipeline.inputs.table_files import Column
from beam_pipeline.recipe.recipe import (
    DEFAULT_FEATURE,
    EVENT_MASK,
    IDENTIFIER,
    VALID_FRAMES,
    Recipe,
)
from beam_pipeline.storage.tfrecord import LONGEST_RECORD
from beam_pipeline.transforms.base import (
    Identity,
    Transform,
    apply_counting,
    apply_transform,
    each_step,
    needs_sample_rate,
    rate_after,
)
from beam_pipeline.transforms.own_code import ByValue
from beam_pipeline.transforms.steps import TRANSFORM, naming_feature, parse_transform


@dataclass(frozen=True)
class FeatureSet:
    """The transforms of a recipe, and the specs of all features of an example.

    Attributes
    ----------
    transforms : mapping
        By the names that the recipe gives them.
    specs : mapping
        By feature name, also of the features that no transform makes.
    made : mapping
        For each feature that a transform makes, the name of the transform.
    extra : tuple of str
        The names of the extra columns.
    separator : str or None
        What separates the classes in a label; None if clips have one class.
    events : EventRule or None
        None if the recipe names no events.
    typical : mapping
        The shape of each feature in a typical clip, if examples are whole clips.
    """

    transforms: Mapping[str, Transform]
    specs: Mapping[str, FeatureSpec] = field(default_factory=dict)
    made: Mapping[str, str] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    separator: str | None = None
    events: EventRule | None = None
    typical: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "transforms": ByValue(self.transforms)}

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        shape: tuple[int, ...],
        sample_rate_hz: int | None,
        classes: Sequence[str] = (),
        columns: Sequence[Column] = (),
    ) -> FeatureSet:
        """Returns the features of a recipe; runs each transform once on silence.

        Parameters
        ----------
        shape : tuple of int
            The shape of a window, ``(frames,)`` or ``(channels, frames)``; of a typical
            clip, if examples are whole clips.
        sample_rate_hz : int or None
            None if clips have different rates. Then no transform may need the rate.
        classes : sequence of str
            Empty if examples have no class.
        columns : sequence of (str, ColumnType)
            The name and the type of each extra column, then of each target.

        Raises
        ------
        RecipeError
            If a transform raises, or returns values that cannot be stored, or that the
            encoding of the recipe cannot hold.
        """
        transforms = resolve_transforms(recipe)
        check_copies(transforms, recipe)
        longer = (*shape[:-1], shape[-1] + MORE_FRAMES)
        specs: list[FeatureSpec] = []
        made, typical = {}, {}
        for name, transform in transforms.items():
            tried = name, recipe.features.get(name, ""), transform
            of_one = check_transform(*tried, shape, sample_rate_hz)
            made.update({spec.name: name for spec in of_one})
            if recipe.windows_are_clips:
                typical.update({spec.name: spec.sizes for spec in of_one})
                long = check_transform(*tried, longer, sample_rate_hz)
                of_one = of_any_length(of_one, long)
            specs += [
                with_encoding(spec, recipe, transform, sample_rate_hz)
                for spec in of_one
            ]
        check_features_exist(recipe, made)
        rule = None
        if recipe.events is not None:
            rule = EventRule.of(recipe, classes, {spec.name: spec for spec in specs})
            specs += rule.specs()
            classes = ()  # clips have none of their own
        several = recipe.label_separator is not None
        targets = recipe.target_columns or ()
        names = ["filepath", "index", "win_start_idx", "fs"]
        names += ["copy"] if recipe.copies else []
        names += [VALID_FRAMES] if recipe.mark_padding else []
        if classes and not several:
            names += ["class"] if targets else ["class", "target"]
        specs += map(described, names)
        if classes and several:
            hot = (len(classes),)
            text = "1 for each class of the clip, in the order of the list of classes"
            specs.append(FeatureSpec("labels", "int64", hot, INT64_LIST, text))
        if targets:
            size = () if len(targets) == 1 else (len(targets),)
            text = f"column {', '.join(targets)}"
            specs.append(FeatureSpec("target", "float32", size, FLOAT_LIST, text))
        extra = dict(columns[: len(columns) - len(targets)])
        specs += [
            FeatureSpec(n, *k, encoding_for(k.dtype, k.shape), f"column {n}")
            for n, k in extra.items()
        ]
        return cls(
            transforms,
            {s.name: s for s in sorted(specs, key=lambda s: s.name)},
            made,
            tuple(extra),
            recipe.label_separator,
            rule,
            typical,
        )

    @property
    def originals(self) -> list[str]:
        """The features that are stored as the file of the clip."""
        return [n for n in self.made if self.specs[n].encoding == ORIGINAL]

    def of_clip(
        self, label: str | None, values: Sequence[Any], numbers: Mapping[str, int]
    ) -> dict[str, Any]:
        """Returns the values that all examples of a clip share.

        These are its class, its target, and its extra columns.

        Parameters
        ----------
        values : sequence
            The values of the extra columns, then of the targets.
        numbers : mapping
            The number of each class.
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
        self, windows: FloatArray, origins: Origins
    ) -> tuple[dict[str, Array], dict[str, int]]:
        """Returns every feature of some windows, and how many values were clipped.

        Parameters
        ----------
        windows : numpy.ndarray, shape (n, frames) or (n, channels, frames), float32
        origins : Origins
            What steps need to know of the examples.

        Returns
        -------
        values : dict of numpy.ndarray
            Each of shape ``(n, *spec.shape)``.
        clipped : dict of int
            The number of values that the transform clipped, where it did.

        Raises
        ------
        TransformError
            If a transform raises, or returns another type or shape than its spec has.
            Names the feature and the start of the window.
        """
        values: dict[str, Array] = {}
        clipped = {}
        given = windows, np.arange(len(windows))
        for name in self.transforms:
            run = partial(self._apply, name, origins)
            arrays, count = run_on_windows(
                run, given, f"feature {name}", origins.starts, origins.filepath
            )
            values.update(arrays)
            if count:
                clipped.update(dict.fromkeys(arrays, count))
        return values, clipped

    def _apply(
        self, name: str, origins: Origins, windows: FloatArray, rows: Integers
    ) -> tuple[dict[str, Array], int]:
        transform = origins.place(self.transforms[name], name, rows)
        returned, clipped = apply_counting(transform, windows, origins.sample_rate_hz)
        arrays = by_feature(name, returned)
        expected = [feature for feature, by in self.made.items() if by == name]
        if list(arrays) != expected:
            raise ValueError(
                f"returned the features {', '.join(arrays)}, but it must return "
                f"{', '.join(expected)}, as for silent windows"
            )
        for feature, values in arrays.items():
            self._check_values(feature, values, len(windows))
        return arrays, clipped

    def _check_values(self, name: str, values: Array, count: int) -> None:
        spec = self.specs[name]
        is_text = spec.dtype == "string"
        same_type = values.dtype.kind in "SU" if is_text else values.dtype == spec.dtype
        expected = (count, *(spec.shape or ()))
        fits = same_type and fits_shape(values.shape, expected)
        if not fits or 0 in values.shape:
            which = f" for {name}" if name not in self.transforms else ""
            raise ValueError(
                f"returned {values.dtype} {values.shape}{which}, but it must return "
                f"{spec.dtype} {expected}, the same type and shape as for silent "
                "windows"
            )


def resolve_transforms(recipe: Recipe) -> dict[str, Transform]:
    """Returns the recipe's transforms by feature name; ``signal`` if it has none."""
    if not recipe.features:
        return {DEFAULT_FEATURE: Identity(dtype=recipe.dtype)}
    transforms = {}
    for name, text in sorted(recipe.features.items()):
        with naming_feature(name):
            transforms[name] = parse_transform(text, recipe.dtype)
    return transforms


def _refused(problem: str, value: Any) -> RecipeError:
    """Returns the error of a feature; ``naming_feature`` adds its name."""
    return RecipeError(TRANSFORM.field, problem, value)


def check_transform(
    name: str,
    description: str,
    transform: Transform,
    shape: tuple[int, ...],
    sample_rate_hz: int | None,
) -> list[FeatureSpec]:
    """Returns the specs of a transform's features, from its result on silent windows.

    Parameters
    ----------
    name : str
        The name that the recipe gives the transform.
    description : str
        The expression of the transform.
    shape : tuple of int
        The shape of one window.

    Raises
    ------
    RecipeError
        If the transform raises, or returns values that cannot be stored.
    """
    with naming_feature(name):
        rate = sample_rate_hz or 0
        if needs_sample_rate(transform):
            rate = required_sample_rate(sample_rate_hz, TRANSFORM, description)
        silence = silent_windows(shape)
        arrays: dict[str, Array] = {name: silence}
        for step, rate_hz in each_step(transform, rate):
            if name not in arrays:
                problem = "has a step that returns a dict; it must end with this step"
                raise _refused(problem, description)
            with trying(step, TRANSFORM, silence, description):
                arrays = by_feature(name, apply_transform(step, arrays[name], rate_hz))
        specs = []
        for feature, values in arrays.items():
            if values.shape[:1] != (2,) or values.size == 0:
                raise _refused(
                    "must return one row, of at least one value, for each window, so "
                    f"shape (2, ...) for windows of shape {(2, *shape)}",
                    values.shape,
                )
            axes = _axes_of(transform, values.shape[1:], sample_rate_hz, shape[-1])
            dtype, of_one = values.dtype.name, values.shape[1:]
            if values.dtype.kind in "SU" and not of_one:
                dtype = STRING
            # Extended precision has different formats on different machines.
            elif values.dtype.kind not in "biufc" or values.dtype.char in "gG":
                raise _refused(
                    "returns a type that cannot be stored; return numbers, or one text "
                    "for each window",
                    str(values.dtype),
                )
            text = description or "the window's samples"
            encoding = encoding_for(dtype, of_one)
            specs.append(FeatureSpec(feature, dtype, of_one, encoding, text, axes))
        return specs


def by_feature(name: str, returned: Any) -> dict[str, Array]:
    """Returns what a transform returned, by feature name.

    One array is the feature ``name``; a dict of arrays has the features ``name/key``.

    Raises
    ------
    RecipeError
        If a dict is empty, or a key is no identifier.
    """
    if not isinstance(returned, Mapping):
        return {name: _native(returned)}
    keys = list(returned)
    if not keys or not all(
        isinstance(k, str) and IDENTIFIER.fullmatch(k) for k in keys
    ):
        raise _refused(
            "must return a dict whose keys are identifiers, like f0, because they "
            "become the names of features",
            keys,
        )
    return {f"{name}/{key}": _native(returned[key]) for key in sorted(keys)}


def check_features_exist(recipe: Recipe, made: Mapping[str, str]) -> None:
    """Raises RecipeError if the recipe names a feature that no transform makes."""
    masks = [t for t in recipe.event_targets if t.startswith(EVENT_MASK)]
    for option, names in (("encodings", recipe.encodings), ("event_targets", masks)):
        for name in names:
            if name.removeprefix(EVENT_MASK) not in made:
                raise RecipeError(
                    option,
                    "names a feature that no transform makes; the features are "
                    f"{', '.join(made)}",
                    name,
                )


def _native(returned: Any) -> Array:
    """Returns the values of a transform in the byte order of this machine."""
    values = np.asarray(returned)
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _axes_of(
    transform: Transform,
    shape: tuple[int, ...],
    sample_rate_hz: int | None,
    frames: int,
) -> tuple[Mapping[str, Any], ...]:
    """Returns the transform's description of its last axes, if their sizes match.

    A user-defined step may change the axes that the steps before it describe. Without
    one sample rate for all clips, axes have no seconds or hertz, so there are none.
    """
    if sample_rate_hz is None:
        return ()
    axes = getattr(transform, "axes", None)
    described = tuple(axes(sample_rate_hz, frames)) if axes else ()
    last = shape[max(len(shape) - len(described), 0) :]
    fits = len(last) == len(described) and all(
        axis.get("size", size) == size
        for axis, size in zip(described, last, strict=True)
    )
    return described if fits else ()


def with_encoding(
    spec: FeatureSpec, recipe: Recipe, transform: Transform, sample_rate_hz: int | None
) -> FeatureSpec:
    """Returns the spec with the encoding that the recipe names for it, if any.

    Parameters
    ----------
    sample_rate_hz : int or None
        That of the windows; None if clips have different rates.

    Raises
    ------
    RecipeError
        If the encoding cannot hold the feature.
    """
    encoding = recipe.encodings.get(spec.name, spec.encoding)
    problem = None
    if encoding == ORIGINAL:
        is_clip = recipe.windows_are_clips and not recipe.copies
        if not (is_clip and isinstance(transform, Identity)):
            problem = (
                "needs identity() of whole clips (`win_len` = clip) without copies, "
                "because it holds their files as they are"
            )
    else:
        if CODECS[encoding].needs_rate:
            asked = f"{spec.name}={encoding}"
            rate = required_sample_rate(sample_rate_hz, TRANSFORM, asked)
            spec = replace(spec, rate_hz=rate_after(transform, rate))
        problem = encoding_problem(spec, encoding)
        if not (problem or CODECS[encoding].holds_shape) and needs_shape(spec.shape):
            problem = (
                f"must be tensor, because several sizes of its shape {spec.shape} "
                "depend on the length of the clip"
            )
    if problem is not None:
        raise RecipeError(f"encodings: {spec.name}", problem, encoding)
    return replace(spec, encoding=encoding)


# By how many frames one length is longer: more than any hop, and odd.
MORE_FRAMES = 100_003

_Axis = Mapping[str, Any]


def of_any_length(
    short: Sequence[FeatureSpec], long: Sequence[FeatureSpec]
) -> list[FeatureSpec]:
    """Returns the specs of a transform's features for clips of any length, from two.

    Raises
    ------
    RecipeError
        If the features, a type or a number of axes depend on the length.
    """
    kinds = [[(s.name, s.dtype, len(s.sizes)) for s in some] for some in (short, long)]
    if kinds[0] != kinds[1]:
        one, other = (
            ", ".join(f"{s.name} {s.dtype} {s.shape}" for s in some)
            for some in (short, long)
        )
        raise _refused(
            f"returns {one} for a short clip, but {other} for a long one; the "
            "features, their types and numbers of axes must be the same for all clips",
            short[0].name,
        )
    merged = []
    for one_spec, other_spec in zip(short, long, strict=True):
        shape = merge_shapes(one_spec.shape, other_spec.shape)
        encoding = encoding_for(one_spec.dtype, shape)
        axes = _merge_axes(one_spec.axes, other_spec.axes)
        merged.append(replace(one_spec, shape=shape, encoding=encoding, axes=axes))
    return merged


def _merge_axes(short: tuple[_Axis, ...], long: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
    """Returns the axes, with null for a size that differs; none if more differs."""
    sizeless, others = (
        [{**axis, "size": None} for axis in axes] for axes in (short, long)
    )
    if sizeless != others:
        return ()
    triples = zip(short, long, sizeless, strict=True)
    return tuple(one if one == other else of_any for one, other, of_any in triples)


# What examples share

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
        See :func:`beam_pipeline.planning.shards.longest_walk`.
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
        _check_window(shape, corpus, recipe)
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


def _check_window(shape: tuple[int, ...], corpus: Corpus, recipe: Recipe) -> None:
    """Raises RecipeError if a window is larger than a message of protobuf.

    A file may say that it has billions of frames in a second.
    """
    length = 4 * math.prod(shape)
    if length > LONGEST_RECORD:
        asked = "win_len" if recipe.win_seconds is None else "win_seconds"
        raise RecipeError(
            asked,
            f"a window of {shape[-1]} frames takes {length} bytes, but it must take "
            f"less than {LONGEST_RECORD}; the clips are " + corpus.listed("Hz"),
            getattr(recipe, asked),
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
        See :func:`beam_pipeline.planning.shards.longest_walk`; 0 if examples keep the
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
