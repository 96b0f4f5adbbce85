"""Steps for your own Beam pipeline: ``Probe``, ``CutWindows`` and ``Transform``.

::

    path --Probe--> dict --CutWindows--> a dict for each window --Transform--> dict
                      |                     |                         |
                      +---- rejects --------+-------------------------+

In: paths of audio files, or dicts with the path as ``filepath``, whose other keys stay.
Out: dicts with the samples and features that :func:`beam_pipeline.record` would store,
because the same functions compute them.
``docs/in-your-own-pipeline.md`` shows a whole pipeline.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput

from beam_pipeline.arrays import Array
from beam_pipeline.audio.retries import retry
from beam_pipeline.errors import (
    ClipError,
    InputError,
    OptionError,
    TransformError,
    Unreadable,
)
from beam_pipeline.examples.window_steps import run_on_windows
from beam_pipeline.inputs.columns import SourceRow
from beam_pipeline.inputs.sources import FOLDER, Input
from beam_pipeline.parameters import check_choice, check_text, check_whole
from beam_pipeline.pipeline.graph import COUNTERS, OneThreadStep
from beam_pipeline.planning.clips import Clip
from beam_pipeline.planning.prober import Prober
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.text import shown
from beam_pipeline.transforms import base
from beam_pipeline.transforms.steps import given_transform
from beam_pipeline.write.shard import read_windows

__all__ = ["REJECTS", "CutWindows", "Probe", "Transform"]

REJECTS = "rejects"
ON_ERROR = ("reject", "raise")

# The options of a recipe that decide which windows a clip has.
WINDOW_OPTIONS = (
    "win_len", "win_seconds", "hop", "hop_seconds", "tail", "max_windows",
    "random_starts", "seed", "sample_rate", "channels", "stream", "allow_truncated",
    "allow_nonfinite",
)  # fmt: skip


class Step(OneThreadStep):
    """A step whose errors are rejects, or raised."""

    def __init__(self, on_error: str):
        super().__init__()
        check_choice("on_error", on_error, ON_ERROR)
        self._on_error = on_error

    def reject(self, stage: str, error: ClipError, reason: str) -> dict[str, str]:
        """Returns the reject of an error, or raises the error.

        That of the machine is raised in any case, so that the runner tries again.
        """
        if self._on_error == "raise" or isinstance(error, Unreadable):
            raise error
        name = type(error).__name__
        Metrics.counter(COUNTERS, f"rejected_{name}").inc()
        return {"path": error.path, "stage": stage, "error": name, "reason": reason}


class _ClipStep(Step):
    """A step on single clips of a folder, under a recipe."""

    def __init__(self, on_error: str, root: str, recipe: Recipe):
        super().__init__(on_error)
        self._inputs = (Input(FOLDER, root, root),)
        self._recipe = recipe.rejecting_short_clips()

    def setup(self) -> None:
        super().setup()
        self._prober = Prober(self._inputs, self._recipe)

    def teardown(self) -> None:
        del self._prober  # it has caches, which cannot be pickled
        super().teardown()

    def process(self, element: Any) -> Iterator[Any]:
        values = _values_of(element)
        row = SourceRow(0, 0, values["filepath"], None)
        try:
            clip = retry(lambda: self._prober.clip(row), row.filepath)
        except ClipError as error:
            reject = self.reject("probe", error, error.reason)
            yield TaggedOutput(REJECTS, reject)
        else:
            yield from self.elements_of(clip, values)

    def elements_of(self, clip: Clip, values: dict[str, Any]) -> Iterator[Any]:
        """Yields what comes of a clip; ``values`` are those of its element."""
        raise NotImplementedError


class Probe(_ClipStep):
    """Reads what a file holds, from its header: path or dict -> dict.

    The header is not trusted blindly; :func:`.clip_reader.probe_audio` says what is
    checked.
    The dict has the keys of the element, and

    ``filepath``
        The path as given, as text.
    ``frames``, ``fs``, ``channels``
        The number of frames, the sample rate in Hz, and the number of channels.
    ``seconds``
        ``frames / fs``.
    ``format``, ``subtype``
        As the decoder names them: ``WAV``, ``PCM_16``; ``mp4``, ``aac``.

    Parameters
    ----------
    root : str
        The folder that paths are relative to; on any file system of Beam.
    allow_truncated, allow_nonfinite : bool
        As in :func:`beam_pipeline.record`.
    on_error : str
        ``reject``: a file that cannot be used becomes an element of the output
        ``rejects``, a dict with ``path``, ``stage``, ``error`` (the name of the class)
        and ``reason``. Beam drops it if the pipeline does not ask for this output with
        ``with_outputs``; the counter ``rejected_`` with the name of the error counts it
        in any case. ``raise``: the error is raised.

    Raises
    ------
    InputError
        If an element is neither a path nor a dict with a path.
    """

    def __init__(
        self,
        *,
        root: str = "",
        allow_truncated: bool = False,
        allow_nonfinite: bool = False,
        on_error: str = "reject",
    ):
        recipe = Recipe(
            win_len=1, allow_truncated=allow_truncated, allow_nonfinite=allow_nonfinite
        )
        super().__init__(on_error, root, recipe)

    def elements_of(self, clip: Clip, values: dict[str, Any]) -> Iterator[Any]:
        yield {
            **values,
            "frames": clip.native_frames,
            "fs": clip.native_rate_hz,
            "channels": clip.channels,
            "seconds": clip.native_frames / clip.native_rate_hz,
            "format": clip.format,
            "subtype": clip.subtype,
        }


class CutWindows(_ClipStep):
    """Decodes a file and cuts its windows: path or dict -> a dict for each window.

    Memory holds one block of windows, however long the file is. Each dict has the keys
    of the element, and

    ``signal``
        The window, float32, of shape ``(frames,)``, or ``(channels, frames)`` with
        ``channels="keep"``. Read-only, because windows may overlap.
    ``fs``
        The sample rate of the window, in Hz.
    ``win_start_idx``
        The first frame of the window in the file, at this rate.

    The samples are those that :func:`beam_pipeline.record` stores with the same
    options, bit for bit. If a file is resampled and goes to several shards, its windows
    from the second shard on can differ by 1e-5, because decoding starts there anew.

    Parameters
    ----------
    win_len, win_seconds, hop, hop_seconds, tail, max_windows, random_starts, seed, \
sample_rate, channels, stream, allow_truncated, allow_nonfinite
        As in :func:`beam_pipeline.record`; ``audio-tfrecords record --help`` explains
        them. Random starts depend on the seed and on the path.
    root : str
        The folder that paths are relative to; on any file system of Beam.
    on_error : str
        As in :class:`Probe`. A file that is damaged in the middle gives the windows
        before the damage, and a reject that says how many are missing.

    Raises
    ------
    RecipeError
        If an option is out of its range, or the window has no length.
    InputError
        If an element is neither a path nor a dict with a path.
    """

    def __init__(self, *, root: str = "", on_error: str = "reject", **options: Any):
        for name, value in options.items():
            if name not in WINDOW_OPTIONS:
                known = ", ".join(WINDOW_OPTIONS)
                raise OptionError(name, f"must be one of {known}", value)
        super().__init__(on_error, root, Recipe(**options))

    def elements_of(self, clip: Clip, values: dict[str, Any]) -> Iterator[Any]:
        done = 0
        try:
            for starts, windows in read_windows(clip, self._inputs, self._recipe):
                for start, window in zip(starts.tolist(), windows, strict=True):
                    yield {
                        **values,
                        "signal": window,
                        "fs": clip.sample_rate_hz,
                        "win_start_idx": start,
                    }
                done += len(starts)
        except ClipError as error:
            missing = (
                f"windows {done} to {clip.examples - 1} of {clip.examples} are missing"
            )
            reason = f"{error.reason}; {missing}"
            yield TaggedOutput(REJECTS, self.reject("decode", error, reason))


def _values_of(element: Any) -> dict[str, Any]:
    """The keys of an element, with its path as text."""
    values = element if isinstance(element, Mapping) else {"filepath": element}
    path = values.get("filepath")
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise InputError(
            "An element must be a path, or a dict with a path as `filepath`; got "
            f"{shown(element)}."
        )
    return {**values, "filepath": os.fspath(path)}


class Transform(Step):
    """Applies a transform to windows: dict -> dict, or array -> array.

    ::

        beam.ParDo(Transform("log_mel()|delta()"))

    Parameters
    ----------
    transform : str or callable
        An expression, or a transform: an object such as ``LogMel()``, or a function of
        windows ``(n, frames)``; see :mod:`beam_pipeline.transforms.base`.
    into : str, optional
        The key of the result in a dict. Without it, the result replaces the window, and
        ``fs`` becomes the rate after the transform, if it resamples.
    sample_rate : int, optional
        In Hz, for arrays, and for dicts that have no ``fs``.
    on_error : str
        ``raise``: raises TransformError. ``reject``: as in :class:`Probe`.

    Raises
    ------
    OptionError
        If the expression cannot be read, or an option is out of its range; on a worker,
        if the transform needs a sample rate and there is none.
    InputError
        If a dict has no such key.
    TransformError
        If the transform raises, or does not return a row for each window. Names the
        file, the start of the window and the cause.
    """

    def __init__(
        self,
        transform: str | base.Transform,
        *,
        into: str | None = None,
        sample_rate: int | None = None,
        on_error: str = "raise",
    ):
        super().__init__(on_error)
        self._transform, self._name = given_transform(transform)
        if into is not None:
            check_text("into", into)
        if sample_rate is not None:
            check_whole("sample_rate", sample_rate)
        self._into = into
        self._sample_rate = sample_rate
        self._needs_rate = base.needs_sample_rate(self._transform)

    def process(self, element: Any) -> Iterator[Any]:
        values = element if isinstance(element, Mapping) else {"signal": element}
        if "signal" not in values:
            raise InputError(
                "An element has no key signal; its keys are "
                f"{', '.join(map(str, values)) or 'none'}."
            )
        rate = values.get("fs", self._sample_rate)
        if rate is None and self._needs_rate:
            raise OptionError(
                "sample_rate",
                f"is needed by {self._name}, because an element has no key fs; give "
                "the rate in Hz",
                None,
            )
        rate = int(rate or 0)
        try:
            result = self._apply(values, rate)
        except TransformError as error:
            yield TaggedOutput(REJECTS, self.reject("transform", error, error.reason))
            return
        if values is not element:
            yield result
        elif self._into is not None:
            yield {**values, self._into: result}
        elif "fs" in values:
            changed = base.rate_after(self._transform, rate)
            yield {**values, "signal": result, "fs": changed}
        else:
            yield {**values, "signal": result}

    def _apply(self, values: Mapping[str, Any], rate: int) -> Any:
        """Returns the result of a window, as that of an array with one window."""

        def run(windows: Array) -> Array:
            rows = np.asarray(base.apply_transform(self._transform, windows, rate))
            if rows.shape[:1] != (1,):
                raise ValueError(
                    f"returned shape {rows.shape} for windows of shape "
                    f"{windows.shape}, but it must return one row for each window"
                )
            return rows

        windows = np.asarray(values["signal"])[np.newaxis]
        windows.flags.writeable = False
        path = values.get("filepath", f"an array of shape {windows.shape[1:]}")
        starts = np.array([values.get("win_start_idx", 0)])
        return run_on_windows(run, (windows,), self._name, starts, str(path))[0]
