"""Some examples of a data set: as text, and to listen to.

::

    examples with a signal        its samples, as they are stored
    examples of spectra alone     the window, decoded again from the inputs
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.side_by_side import DataSets
from beam_pipeline.errors import InputError, OptionError, OutputError, RecipeError
from beam_pipeline.inputs.sources import Input
from beam_pipeline.read.choices import choose_splits
from beam_pipeline.read.decode_again import DecodeAgain
from beam_pipeline.read.example_view import describe_value, signals_of
from beam_pipeline.read.recorded_windows import RecordedWindows, read_recorded
from beam_pipeline.read.records import Records, open_records
from beam_pipeline.storage import files

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
    """The sounds of examples of data sets.

    The sound is the feature ``signal``, or else the first feature that is one, with the
    samples that are stored. If there is none, the window is decoded again from the
    inputs, with the augmentation of a copy: it is what the transforms got.

    Parameters
    ----------
    data : DataSets
    examples : mapping
        All examples whose sounds may be asked for, by their split, or splits, and their
        number in it. The tables and the inputs are read once for all of them.
    inputs : sequence of Input
        What the data sets were recorded from; only examples without a signal need them.
    """

    def __init__(
        self,
        data: DataSets,
        examples: Mapping[tuple[str, int], Mapping[str, Any]],
        inputs: Sequence[Input] = (),
    ):
        self._data, self._examples, self._inputs = data, examples, inputs
        self._decoders: dict[int, tuple[DecodeAgain, RecordedWindows]] = {}

    def of(self, split: str, number: int) -> Sound:
        """Returns the sound of an example.

        Raises
        ------
        OptionError
            If it has no signal, and there are no inputs.
        InputError
            If its window cannot be decoded again.
        """
        example = self._examples[split, number]
        found = stored_signal(example, self._data.metadata)
        samples, rate = found or self._decoded(split, number, example)
        return Sound(_name(split, number, example), samples, rate)

    def _decoded(
        self, split: str, number: int, example: Mapping[str, Any]
    ) -> tuple[Array, int]:
        """Decodes the window of an example again; returns its samples and rate."""
        again, recorded = self._decoder(self._data_set_of(split, number))
        row = _row_of(example, recorded)
        if row is None:
            raise InputError(
                f"The table of windows has no window of {example['filepath']} at frame "
                f"{example['win_start_idx']}. To compare the data set with its tables, "
                "run `audio-tfrecords verify --deep`."
            )
        try:
            return again.window(row)
        except (ValueError, RecipeError) as error:
            path = example["filepath"]
            raise InputError(f"{path}: example {number}: {error}") from error

    def _data_set_of(self, split: str, number: int) -> int:
        """Returns which of the data sets holds an example."""
        held = [
            each.splits[split].examples if split in each.splits else 0
            for each in self._data.each[:-1]
        ]
        return int(np.searchsorted(np.cumsum(held), number, "right"))

    def _decoder(self, place: int) -> tuple[DecodeAgain, RecordedWindows]:
        """Returns what decodes windows of one of the data sets, and its tables."""
        if place in self._decoders:
            return self._decoders[place]
        folder, metadata = self._data.folders[place], self._data.each[place]
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
        recorded = read_recorded(folder, metadata)
        rows = (
            _row_of(example, recorded)
            for which, example in self._examples.items()
            if self._data_set_of(*which) == place
            and stored_signal(example, metadata) is None
        )
        known = [row for row in rows if row is not None]
        again = DecodeAgain(metadata, recorded, self._inputs, known)
        self._decoders[place] = again, recorded
        return self._decoders[place]


def stored_signal(
    example: Mapping[str, Any], metadata: Metadata
) -> tuple[Array, int] | None:
    """Returns the samples of an example that are stored, and their rate."""
    signals = signals_of(example, metadata.features, metadata.recipe)
    found = ((_for_wav(samples), rate) for _, samples, rate in signals)
    return next(((wav, rate) for wav, rate in found if wav is not None), None)


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


def _row_of(example: Mapping[str, Any], recorded: RecordedWindows) -> int | None:
    """Returns the row of an example in the table of windows, if it has one."""
    clips = np.flatnonzero(recorded.manifest["index"] == int(example["index"]))
    for clip in clips.tolist():
        of_clip = recorded.of_clip(clip)
        rows = of_clip[
            (recorded.start[of_clip] == int(example["win_start_idx"]))
            & (recorded.copy[of_clip] == int(example.get("copy", 0)))
        ]
        if len(rows):
            return int(rows[0])
    return None


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


def some_examples(
    folder: str,
    metadata: Metadata,
    count: int,
    split: str | None = None,
    **chosen: str | None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the examples of :func:`some_records`, with their positions."""
    records, positions = _spread_over(folder, metadata, count, split, **chosen)
    for place, position in positions.items():
        try:
            found = records[place]
            yield position, {n: found[n] for n in metadata.features if n in found}
        except ValueError as error:
            raise InputError(
                f"{folder}: example {position} cannot be read: {error}. To check every "
                f"example, run `audio-tfrecords verify --deep {folder}`."
            ) from error


def some_records(
    folder: str,
    metadata: Metadata,
    count: int,
    split: str | None = None,
    **chosen: str | None,
) -> Iterator[tuple[int, bytes]]:
    """Yields some records of a split, with their positions in it.

    They are spread evenly: neighbours are often windows of one clip, so the first
    examples would show little.

    Parameters
    ----------
    split : str, optional
        See :func:`shown_split`.
    clip : str, optional
        Only records of the file with this path relative to its input.
    where : str, optional
        Only records that meet this condition, see :meth:`.Records.where`.

    Raises
    ------
    InputError
        If there is no such split or record, or the data set has no index of members.
    OptionError
        If the condition cannot be read.
    """
    records, positions = _spread_over(folder, metadata, count, split, **chosen)
    return zip(positions.values(), records.serialised([*positions]), strict=True)


def _spread_over(
    folder: str,
    metadata: Metadata,
    count: int,
    split: str | None,
    *,
    clip: str | None = None,
    where: str | None = None,
) -> tuple[Records, dict[int, int]]:
    """Returns records, and the positions in the split of ``count`` of them."""
    name = shown_split(metadata, split)
    every = records = open_records(folder, name)
    if clip is not None:
        records = records.of_clip(clip)
    if where is not None:
        records = records.where(where)
    total = len(records)
    if not total and len(every):
        raise InputError(f"Split {name} has no such example.")
    places = sorted({i * total // count for i in range(count)} if total else set())
    positions = np.flatnonzero(np.isin(every.numbers, records.numbers))
    return records, {place: int(positions[place]) for place in places}


def shown_split(metadata: Metadata, split: str | None = None) -> str:
    """Returns the chosen split; by default ``train``, or else the largest.

    Raises
    ------
    InputError, OptionError
        See :func:`.choose_splits`.
    """
    splits = metadata.splits
    if split is None and "train" in splits:
        return "train"
    if split is None:
        return max(splits, key=lambda name: splits[name].examples)
    choose_splits(metadata, split)
    return split


def example_text(record: bytes, metadata: Metadata) -> str:
    """Returns a record as protobuf text, features sorted; it ends in a newline.

    ``print`` of a ``tf.train.Example`` gives the same text, but in any order.
    """
    import tensorflow as tf
    from google.protobuf import text_format

    has_steps = any(spec.sequence for spec in metadata.features.values())
    kind = tf.train.SequenceExample if has_steps else tf.train.Example
    return str(text_format.MessageToString(kind.FromString(record)))


def describe_example(example: Mapping[str, Any]) -> str:
    """Returns one line for each feature: its dtype, shape, first values and range."""
    width = max((len(name) for name in example), default=0)
    return "\n".join(
        f"  {name:{width}}  {describe_value(value)}" for name, value in example.items()
    )
