"""Examples to listen to: their samples as WAV files.

::

    examples with a signal        its samples, as they are stored
    examples of spectra alone     the window, decoded again from the inputs
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import InputError, OptionError, OutputError, RecipeError
from beam_pipeline.inputs.sources import Input
from beam_pipeline.read.decode_again import DecodeAgain, Listed
from beam_pipeline.read.example_view import is_signal, rate_of
from beam_pipeline.read.recorded_windows import RecordedWindows, read_recorded
from beam_pipeline.storage import files
from beam_pipeline.write.process_settings import OneThread

# How a WAV file stores samples of a type, unchanged.
_SUBTYPES = {
    "float32": "FLOAT", "float64": "DOUBLE", "int16": "PCM_16", "int32": "PCM_32",
}  # fmt: skip
_LONGEST_NAME = 80

Array = npt.NDArray[Any]


class Sound(NamedTuple):
    """The samples of an example.

    Attributes
    ----------
    name : str
        For a file, without a suffix: split, number, clip and second.
    samples : numpy.ndarray, shape (frames,) or (channels, frames)
        Of a type that WAV files store.
    rate : int
        In hertz.
    """

    name: str
    samples: Array
    rate: int


class Sounds:
    """The sounds of examples of a data set.

    The sound is the feature ``signal``, or else the first feature that is one, with the
    samples that are stored. If there is none, the window is decoded again from the
    inputs, with the augmentation of a copy: it is what the transforms got.

    Parameters
    ----------
    examples : iterable of mapping
        All examples whose sounds may be asked for, as :func:`.show.some_examples`
        yields them. The tables and the inputs are read once for all of them.
    inputs : sequence of Input
        What the data set was recorded from; only examples without a signal need them.
    """

    def __init__(
        self,
        folder: str,
        metadata: Metadata,
        examples: Iterable[Mapping[str, Any]],
        inputs: Sequence[Input] = (),
    ):
        self._folder, self._metadata, self._inputs = folder, metadata, inputs
        self._examples = list(examples)

    def of(self, split: str, number: int, example: Mapping[str, Any]) -> Sound:
        """Returns the sound of an example.

        Parameters
        ----------
        split, number
            The split, or splits, and the example's number in them.

        Raises
        ------
        OptionError
            If it has no signal, and there are no inputs.
        InputError
            If its window cannot be decoded again.
        """
        found = stored_signal(example, self._metadata)
        samples, rate = found or self._decoded(number, example)
        return Sound(_name(split, number, example), samples, rate)

    def _decoded(self, number: int, example: Mapping[str, Any]) -> tuple[Array, int]:
        """Decodes the window of an example again; returns its samples and rate."""
        again, listed = self._again, self._listed
        row = _row_of(example, again.recorded)
        OneThread.begin()
        try:
            clip = again.clip(int(again.recorded.clip[row]), listed)
            return again.window(clip, row), clip.sample_rate_hz
        except (ValueError, RecipeError) as error:
            path = example["filepath"]
            raise InputError(f"{path}: example {number}: {error}") from error
        finally:
            OneThread.end()

    @cached_property
    def _again(self) -> DecodeAgain:
        folder, metadata = self._folder, self._metadata
        if metadata.recipe is None:
            raise InputError(
                f"{folder} has no feature of samples, and was not recorded from audio "
                "files, so there is nothing to listen to."
            )
        if not self._inputs:
            raise OptionError(
                "input",
                "is needed, because the examples have no feature of samples: name what "
                "the data set was recorded from, and the windows are decoded again",
            )
        root = files.absolute(folder)
        recorded = read_recorded(root, metadata)
        recipe = metadata.recipe.replace(fingerprint=False, hash_files=False)
        return DecodeAgain(recipe, metadata, recorded, self._inputs)

    @cached_property
    def _listed(self) -> Listed:
        """What the inputs list for the clips of the examples without a signal."""
        rows = []
        for example in self._examples:
            if stored_signal(example, self._metadata) is None:
                with suppress(InputError):  # raised for the example that is asked for
                    rows.append(_row_of(example, self._again.recorded))
        return self._again.listed(rows)


def stored_signal(
    example: Mapping[str, Any], metadata: Metadata
) -> tuple[Array, int] | None:
    """Returns the samples of an example that are stored, and their rate."""
    names = sorted(example, key=lambda name: (name != "signal", name))
    for name in names:
        value = example[name]
        spec = metadata.features.get(name)
        if not isinstance(value, np.ndarray) or not value.size:
            continue
        samples = _for_wav(value)
        if samples is None or not is_signal(value, spec.axes if spec else ()):
            continue
        rate = rate_of(name, example, metadata.recipe)
        if rate is not None:
            return samples, rate
    return None


def _for_wav(samples: Array) -> Array | None:
    """Returns samples of a type that WAV files store, exactly; None if there is none.

    Integers of 8 bits become 16 bits, with the same loudness.
    """
    if samples.dtype.name in _SUBTYPES:
        return samples
    if samples.dtype.name in ("float16", "bfloat16"):
        return samples.astype(np.float32)
    if samples.dtype == np.int8:
        return samples.astype(np.int16) * 256
    return None


def _row_of(example: Mapping[str, Any], recorded: RecordedWindows) -> int:
    """Returns the row of an example in the table of windows."""
    clips = np.flatnonzero(recorded.manifest["index"] == int(example["index"]))
    for clip in clips.tolist():
        of_clip = recorded.of_clip(clip)
        rows = of_clip[
            (recorded.start[of_clip] == int(example["win_start_idx"]))
            & (recorded.copy[of_clip] == int(example.get("copy", 0)))
        ]
        if len(rows):
            return int(rows[0])
    raise InputError(
        f"The table of windows has no window of {example['filepath']} at frame "
        f"{example['win_start_idx']}. To compare the data set with its tables, run "
        "`audio-tfrecords verify --deep`."
    )


def _name(split: str, number: int, example: Mapping[str, Any]) -> str:
    """Returns the name of an example's file: ``train-000012-owl_night-3.5s``."""
    parts = [split, f"{number:06}"]
    path, start, rate = (example.get(k) for k in ("filepath", "win_start_idx", "fs"))
    if isinstance(path, str):
        parts.append(os.path.splitext(path)[0][-_LONGEST_NAME:])
    if start is not None and rate:
        parts.append(f"{int(start) / int(rate):.6g}s")
    if example.get("copy"):
        parts.append(f"copy{int(example['copy'])}")
    return re.sub(r"[^\w.=+-]+", "_", "-".join(parts))


def wav_folder(name: str) -> str:
    """Returns the folder for WAV files, if it is on this machine.

    Raises
    ------
    OptionError
        If it is not, or is no folder.
    """
    if not files.is_local(name):
        raise OptionError("save_wav", "must be a folder on this machine", name)
    if os.path.exists(name) and not os.path.isdir(name):
        raise OptionError("save_wav", "must be a folder, not a file", name)
    return name


def save_wav(sound: Sound, folder: str) -> str:
    """Writes a sound into a folder, which is made; returns the path.

    Floating-point samples stay so, also beyond full scale, and int16 stays int16.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    import soundfile

    path = os.path.join(folder, f"{sound.name}.wav")
    subtype = _SUBTYPES[sound.samples.dtype.name]
    try:
        os.makedirs(folder, exist_ok=True)
        soundfile.write(path, sound.samples.T, sound.rate, subtype=subtype)
    except (OSError, soundfile.LibsndfileError) as error:
        raise OutputError(
            f"{path} cannot be written: {error}. Give another folder, or free some "
            "space."
        ) from error
    return path
