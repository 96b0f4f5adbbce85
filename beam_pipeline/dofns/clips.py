"""Files to windows: :class:`Probe` and :class:`CutWindows`; what all steps share."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput

from beam_pipeline.audio.decoder import AudioInfo
from beam_pipeline.audio.retrying import retry
from beam_pipeline.errors import ClipError, InputError, Unreadable
from beam_pipeline.inputs.rows import SourceRow
from beam_pipeline.inputs.sources import FOLDER, Input
from beam_pipeline.parameters import check_choice
from beam_pipeline.pipeline.sink import COUNTERS
from beam_pipeline.plan.clips import Clip
from beam_pipeline.plan.prober import Prober
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.write.blocks import read_windows
from beam_pipeline.write.process_settings import OneThread

REJECTS = "rejects"
ON_ERROR = ("reject", "raise")


class Step(beam.DoFn):  # type: ignore[misc]
    """A step whose errors are rejects, or raised."""

    def __init__(self, on_error: str):
        super().__init__()
        check_choice("on_error", on_error, ON_ERROR)
        self._on_error = on_error

    def setup(self) -> None:
        OneThread.begin()

    def teardown(self) -> None:
        OneThread.end()

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
        self._recipe = recipe

    def setup(self) -> None:
        super().setup()
        self._prober = Prober(self._inputs, self._recipe)

    def teardown(self) -> None:
        del self._prober  # it has caches, which cannot be pickled
        super().teardown()

    def clip_of(
        self, values: Mapping[str, Any], info: AudioInfo | None = None
    ) -> Clip | TaggedOutput:
        """Returns the clip of an element, or the reject of its file.

        With ``info``, its file is not opened.
        """
        row = SourceRow(0, 0, values["filepath"], None)
        try:
            return retry(lambda: self._prober.clip(row, info), row.filepath)
        except ClipError as error:
            reject = self.reject("probe", error, error.reason)
            return TaggedOutput(REJECTS, reject)


class Probe(_ClipStep):
    """Reads what a file holds, from its header: path or dict -> dict.

    The header is not trusted blindly; :func:`.probe.probe_audio` says what is checked.
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

    def process(self, element: Any) -> Iterator[Any]:
        values = _values_of(element)
        clip = self.clip_of(values)
        if isinstance(clip, TaggedOutput):
            yield clip
            return
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

    Memory holds one block of windows, however long the file is. An element that
    :class:`Probe` made is not probed again. Each dict has the keys of the element, and

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

    def __init__(
        self,
        *,
        win_len: int | Literal["clip"] | None = None,
        win_seconds: float | None = None,
        hop: int | None = None,
        hop_seconds: float | None = None,
        tail: Literal["drop", "pad", "overlap"] = "drop",
        max_windows: int | None = None,
        random_starts: bool = False,
        seed: int = 0,
        sample_rate: int | None = None,
        channels: Literal["mix", "keep"] | int = "mix",
        stream: str = "",
        allow_truncated: bool = False,
        allow_nonfinite: bool = False,
        root: str = "",
        on_error: str = "reject",
    ):
        recipe = Recipe(
            win_len=win_len,
            win_seconds=win_seconds,
            hop=hop,
            hop_seconds=hop_seconds,
            tail=tail,
            max_windows=max_windows,
            random_starts=random_starts,
            seed=seed,
            sample_rate=sample_rate,
            channels=channels,
            stream=stream,
            allow_truncated=allow_truncated,
            allow_nonfinite=allow_nonfinite,
        )
        super().__init__(on_error, root, recipe)

    def process(self, element: Any) -> Iterator[Any]:
        values = _values_of(element)
        clip = self.clip_of(values, _probed(values))
        if isinstance(clip, TaggedOutput):
            yield clip
            return
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
            f"{reprlib.repr(element)}."
        )
    return {**values, "filepath": os.fspath(path)}


def _probed(values: Mapping[str, Any]) -> AudioInfo | None:
    """What a :class:`Probe` found; None if the element comes from elsewhere."""
    found = [values.get(k) for k in ("frames", "fs", "channels", "format", "subtype")]
    return None if None in found else AudioInfo(*found)  # type: ignore[arg-type]
