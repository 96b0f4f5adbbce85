"""Features: what an example holds, and how it is made from windows.

One spec drives the encoder, the decoder and the reader, and stands in the metadata.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError, TransformError
from beam_pipeline.events import (
    Event,
    frame_mask,
    main_class,
    multi_hot,
    named_no_event,
)
from beam_pipeline.expressions import TRANSFORM, naming_step, parse_transform
from beam_pipeline.recipe import EVENT_MASK, Recipe, comma_list
from beam_pipeline.transforms.base import (
    Chain,
    Identity,
    Transform,
    apply_transform,
    needs_sample_rate,
    rate_after,
)

FloatArray = npt.NDArray[np.float32]

FLOAT_LIST, INT64_LIST, BYTES_LIST, RAW = (
    "float_list",
    "int64_list",
    "bytes_list",
    "raw",
)
SHORT_LIST = 16

_DESCRIPTIONS = {
    "class": "the clip's class",
    "target": "index of the class in the sorted list of classes",
    "filepath": "the clip's file, relative to its input",
    "index": "the clip's place in the listing of the inputs",
    "win_start_idx": "first frame of the window in the clip, at the output rate",
    "fs": "output sample rate, Hz",
    "copy": "0: the window as it is; k: its k-th augmented copy",
}


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """One feature: how it looks in memory and how it is stored.

    Attributes
    ----------
    dtype : str
        A numpy name, or ``string``.
    shape : tuple of int
        Of one example.
    encoding : str
        ``float_list``, ``int64_list``, ``bytes_list``, or ``raw``: little-endian
        C-order bytes in a ``bytes_list``.
    axes : list of dict
        For spectra: what the last axes mean.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    encoding: str
    description: str = ""
    axes: tuple[Mapping[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The spec as the metadata holds it, without its name."""
        return {
            "dtype": self.dtype,
            "shape": list(self.shape),
            "encoding": self.encoding,
            "description": self.description,
            **({"axes": list(self.axes)} if self.axes else {}),
        }

    @classmethod
    def from_json(cls, name: str, values: Mapping[str, Any]) -> FeatureSpec:
        """The spec that :meth:`to_json` wrote."""
        return cls(
            name,
            values["dtype"],
            tuple(values["shape"]),
            values["encoding"],
            values.get("description", ""),
            tuple(values.get("axes", ())),
        )


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
        transforms = resolve_transforms(recipe)
        shape = (win_len,) if channels is None else (channels, win_len)
        specs = [
            check_transform(
                name, recipe.features.get(name, ""), transform, shape, sample_rate_hz
            )
            for name, transform in transforms.items()
        ]
        rule = None
        if recipe.events is not None:
            rule = EventRule.of(recipe, classes, {spec.name: spec for spec in specs})
            specs += rule.specs()
            classes = ()  # those of clips
        several = recipe.label_separator is not None
        texts = ["filepath", *(["class"] if classes and not several else [])]
        numbers = ["index", "win_start_idx", "fs", *(["copy"] if recipe.copies else [])]
        targets = comma_list(recipe.target_columns)
        if classes and not several and not targets:
            numbers.append("target")
        specs += [
            FeatureSpec(n, "string", (), BYTES_LIST, _DESCRIPTIONS[n]) for n in texts
        ]
        specs += [
            FeatureSpec(n, "int64", (), INT64_LIST, _DESCRIPTIONS[n]) for n in numbers
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
            transforms, named, tuple(n for n, _ in extra), recipe.label_separator, rule
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


@dataclass(frozen=True)
class EventRule:
    """What examples hold of the events in their windows.

    Attributes
    ----------
    classes : tuple of str
        The classes of events, in their order.
    share : float
        As in :func:`events.counts_in`.
    no_event : str or None
        The class of windows without an event.
    drops : bool
        Whether such windows are left out.
    targets : tuple of str
        Of ``recipe.EVENT_TARGETS``.
    masked : mapping
        Feature name to its axis of time.
    """

    classes: tuple[str, ...]
    share: float
    no_event: str | None
    drops: bool
    targets: tuple[str, ...]
    masked: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(
        cls, recipe: Recipe, classes: Sequence[str], specs: Mapping[str, FeatureSpec]
    ) -> EventRule:
        """The rule of a recipe, for features of these specs.

        Raises
        ------
        RecipeError
            If a mask is asked of a feature that has no axis of time.
        """
        targets = comma_list(recipe.event_targets)
        masked = {}
        for target in targets:
            name = target.removeprefix(EVENT_MASK)
            if name == target:
                continue
            axes = specs[name].axes
            if not axes or axes[0].get("name") != "time":
                raise RecipeError(
                    "event_targets", "has no frames in time to be masked", target
                )
            masked[name] = axes[0]
        return cls(
            tuple(classes),
            recipe.event_overlap,
            next(iter(named_no_event(recipe)), None),
            recipe.no_event == "drop",
            tuple(t for t in targets if not t.startswith(EVENT_MASK)),
            masked,
        )

    def specs(self) -> list[FeatureSpec]:
        """The specs of what :meth:`columns` gives."""
        count = len(self.classes)
        axis = {"name": "class", "size": count, "labels": list(self.classes)}
        specs = []
        if "class" in self.targets:
            text = "the class with the most time in the window; none: empty, -1"
            specs += [
                FeatureSpec("class", "string", (), BYTES_LIST, text),
                FeatureSpec("target", "int64", (), INT64_LIST, _DESCRIPTIONS["target"]),
            ]
        if "multi_hot" in self.targets:
            text = "1 for each class with an event in the window, in the list's order"
            specs.append(FeatureSpec("labels", "int64", (count,), INT64_LIST, text))
        for name, time in self.masked.items():
            text = (
                f"1 where the middle of a frame of {name} lies in an event of a class"
            )
            shape = (time["size"], count)
            axes = ({**time}, axis)
            specs.append(FeatureSpec(f"{name}_mask", "uint8", shape, RAW, text, axes))
        return specs

    def found(
        self,
        events: Sequence[Event],
        starts_s: npt.NDArray[np.float64],
        length_s: float,
    ) -> npt.NDArray[np.bool_]:
        """Which classes have an event in which windows, shape (windows, classes)."""
        return multi_hot(events, self._numbers(), starts_s, length_s, self.share)

    def kept(
        self,
        events: Sequence[Event],
        starts_s: npt.NDArray[np.float64],
        length_s: float,
    ) -> npt.NDArray[np.bool_]:
        """Which windows are not left out for want of an event."""
        if not self.drops:
            return np.ones(len(starts_s), np.bool_)
        return np.asarray(self.found(events, starts_s, length_s).any(axis=1))

    def columns(
        self,
        events: Sequence[Event],
        starts_s: npt.NDArray[np.float64],
        length_s: float,
    ) -> dict[str, npt.NDArray[Any]]:
        """What examples hold, for windows that start there and last so long."""
        numbers = self._numbers()
        columns: dict[str, npt.NDArray[Any]] = {}
        nothing = -1 if self.no_event is None else numbers[self.no_event]
        if "class" in self.targets:
            best = main_class(events, numbers, starts_s, length_s, self.share)
            best[best < 0] = nothing
            columns["target"] = best
            columns["class"] = np.array([*self.classes, ""])[best]
        if "multi_hot" in self.targets:
            hot = self.found(events, starts_s, length_s)
            if nothing >= 0:
                hot[~hot.any(axis=1), nothing] = True
            columns["labels"] = hot.astype(np.int64)
        for name, time in self.masked.items():
            frames = np.arange(time["size"])
            # Of a constant-Q transform the places are middles, and have no length.
            centres = time["start"] + time["step"] * frames + time.get("length", 0) / 2
            columns[f"{name}_mask"] = frame_mask(events, numbers, starts_s, centres)
        return columns

    def counts(
        self,
        events: Sequence[Event],
        starts_s: npt.NDArray[np.float64],
        length_s: float,
    ) -> dict[str, int]:
        """How many of the windows count for each class.

        Where examples have one class and no more, it is that one.
        """
        if self.targets == ("class",):
            numbers = self.columns(events, starts_s, length_s)["target"]
            return {
                label: int((numbers == k).sum()) for k, label in enumerate(self.classes)
            }
        hot = self.found(events, starts_s, length_s)
        counts = dict(zip(self.classes, hot.sum(axis=0).tolist(), strict=True))
        if self.no_event is not None:
            counts[self.no_event] += int((~hot.any(axis=1)).sum())
        return counts

    def _numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.classes)}


_COLUMN_ENCODING = {"string": BYTES_LIST, "int64": INT64_LIST, "float32": FLOAT_LIST}


@contextlib.contextmanager
def naming_feature(name: str) -> Iterator[None]:
    """Adds a feature's name to a RecipeError from the block: what, then where."""
    try:
        yield
    except RecipeError as error:
        field, problem, value = error.args
        inner = field.removeprefix(TRANSFORM.field).removeprefix(": ")
        where = f"{TRANSFORM.field} {name}" + (f": {inner}" if inner else "")
        raise RecipeError(where, problem, value) from error


def resolve_transforms(recipe: Recipe) -> dict[str, Transform]:
    """The recipe's transforms by name; the signal itself where it names none."""
    if not recipe.features:
        return {"signal": Identity(dtype=recipe.dtype)}
    transforms = {}
    for name, text in sorted(recipe.features.items()):
        with naming_feature(name):
            transforms[name] = parse_transform(text, recipe.dtype)
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
            _dtype_name(values),
            values.shape[1:],
            _encoding_of(values),
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


def _dtype_name(values: npt.NDArray[Any]) -> str:
    if values.dtype.kind in "SU" and values.ndim == 1:
        return "string"
    # Extended precision is another format on other machines.
    if values.dtype.kind not in "biufc" or values.dtype.char in "gG":
        raise RecipeError(
            TRANSFORM.field,
            "returns a type that cannot be stored; return numbers, or one text each",
            str(values.dtype),
        )
    return str(values.dtype.name)


def _encoding_of(values: npt.NDArray[Any]) -> str:
    if values.dtype.kind in "SU":
        return BYTES_LIST
    if values.dtype == np.float32:
        return FLOAT_LIST
    is_short = values.ndim == 1 or (values.ndim == 2 and values.shape[1] <= SHORT_LIST)
    # uint64 holds values that int64_list cannot.
    if is_short and values.dtype.kind in "biu" and values.dtype != np.uint64:
        return INT64_LIST
    return RAW
