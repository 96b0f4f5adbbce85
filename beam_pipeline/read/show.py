"""Some examples of a data set for people, and the sound of any of them.

::

    examples with a signal        its samples, as they are stored
    examples of spectra alone     the window, decoded again from the inputs
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from beam_pipeline.dataset.folders import MANIFEST
from beam_pipeline.dataset.side_by_side import DataSets, Folders, open_data_sets
from beam_pipeline.dataset.tables import read_table
from beam_pipeline.errors import InputError, OptionError, OutputError, RecipeError
from beam_pipeline.inputs.sources import Input
from beam_pipeline.parameters import check_text, check_whole
from beam_pipeline.read.choices import Split, choose_splits
from beam_pipeline.read.decode_again import DecodeAgain
from beam_pipeline.read.example_view import (
    Sound,
    describe_example,
    plot_examples,
    signals_of,
    start_of,
)
from beam_pipeline.read.recorded_windows import read_recorded
from beam_pipeline.read.records import Records, open_records
from beam_pipeline.storage import files
from beam_pipeline.storage.files import PathLike
from beam_pipeline.text import html_line

_LONGEST_NAME = 80

# The type of stored samples -> that of a WAV file, which holds them unchanged.
_IN_WAV = {
    "float16": ("float32", "FLOAT"), "bfloat16": ("float32", "FLOAT"),
    "float32": ("float32", "FLOAT"), "float64": ("float64", "DOUBLE"),
    "int16": ("int16", "PCM_16"), "int32": ("int32", "PCM_32"),
}  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Shown:
    """Some examples: printed, as lines of text; in a notebook, drawn and played.

    Attributes
    ----------
    records : Records
        In the order of their numbers in the split.
    """

    records: Records

    def titles(self) -> list[str]:
        """Returns what each example is: its number, split, and input, if several."""
        records = self.records
        place = f" of {records.split}" if len(records.metadata.splits) > 1 else ""
        several = max(_of_clips(records.data, "input"), default=0) > 0
        return [
            f"example {number}{place}"
            + (f", from input {records.source(k).input}" if several else "")
            for k, number in enumerate(records.numbers.tolist())
        ]

    def __repr__(self) -> str:
        metadata = self.records.metadata
        texts = (describe_example(example, metadata) for example in self.records)
        pairs = zip(self.titles(), texts, strict=True)
        return "\n".join(f"{title}\n{text}" for title, text in pairs)

    def _repr_html_(self) -> str:
        pairs = zip(self.titles(), self.records, strict=True)
        return "".join(html_line(title) + e._repr_html_() for title, e in pairs)

    def plot(self, path: PathLike) -> list[str]:
        """Draws them into a picture; see :func:`.plot_examples`."""
        path = files.path_text("path", path)
        return plot_examples([*self.records], self.records.metadata, path)


def show(
    folder: Folders,
    n: int = 3,
    split: Split | None = None,
    *,
    clip: str | None = None,
    where: str | None = None,
) -> Shown:
    """Shows some examples of a data set, which are spread evenly over a split.

    ::

        show("records/", where="level_db > -30")  # in a notebook
        print(show("records/", 5))
        show("records/").plot("examples.png")

    Parameters
    ----------
    n : int
        How many. They are spread evenly: neighbours are often windows of one clip, so
        the first examples would show little.
    split : str or list of str, optional
        Default: that of the clip; or else ``train``, or else the largest.
    clip : str, optional
        Only examples of the file with this path relative to its input.
    where : str, optional
        Only examples that meet this condition, see :meth:`.Records.where`.

    Raises
    ------
    InputError
        If there is no such split or example, or the data set has no index of members.
    OptionError
        If the split or the condition cannot be read.
    """
    check_whole("n", n)
    if clip is not None:
        check_text("clip", clip)
    if split is None:
        data = open_data_sets(folder)
        splits = data.metadata.splits
        largest = max(splits, key=lambda name: splits[name].examples)
        split = "train" if "train" in splits else largest
        found = _of_clips(data, "split", clip) if clip else ()
        split = [name for name in splits if name in found] or split
    every = records = open_records(folder, split)
    if clip is not None:
        records = records.of_clip(clip)
    if where is not None:
        records = records.where(where)
    total = len(records)
    if not total and len(every):
        raise InputError(f"Split {every.split} has no such example.")
    return Shown(records[sorted({i * total // n for i in range(n)} if total else ())])


def _of_clips(data: DataSets, column: str, path: str | None = None) -> set[Any]:
    """Returns the values in a column of the manifests: of all clips, or of a file's."""
    import pyarrow.compute as pc

    found: set[Any] = set()
    for folder in data.folders:
        if files.exists(files.join(folder, MANIFEST)):
            table = read_table(folder, MANIFEST, [column] + ["path"] * bool(path))
            if path:
                table = table.filter(pc.equal(table["path"], path))
            found.update(table[column].unique().to_pylist())
    return found


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
        self._decoders: dict[int, DecodeAgain] = {}

    def of(self, splits: str, number: int) -> Sound:
        """Returns the sound of an example.

        Raises
        ------
        OptionError
            If it has no signal, and there are no inputs.
        InputError
            If its window cannot be decoded again.
        """
        example = self._examples[splits, number]
        if stored := self._stored(example):
            return stored
        place, split, number_there = self._place(splits, number)
        again = self._decoder(place)
        try:
            row = again.recorded.of_split(split)[number_there]
            return Sound(*again.window(int(row)))
        except (ValueError, RecipeError) as error:
            path = example["filepath"]
            raise InputError(f"{path}: example {number}: {error}") from error

    def _stored(self, example: Mapping[str, Any]) -> Sound | None:
        found = signals_of(example, self._data.metadata).values()
        return next((s for s in found if s.samples.dtype.name in _IN_WAV), None)

    def _place(self, splits: str, number: int) -> tuple[int, str, int]:
        """Returns which data set holds an example, and its split and number there."""
        for split in choose_splits(self._data.metadata, splits).splits:
            for place, each in enumerate(self._data.each):
                held = each.splits[split].examples if split in each.splits else 0
                if number < held:
                    return place, split, number
                number -= held
        raise IndexError(f"{splits} has fewer examples")

    def _decoder(self, place: int) -> DecodeAgain:
        """Returns what decodes windows of one of the data sets."""
        if place in self._decoders:
            return self._decoders[place]
        folder, metadata = self._data.folders[place], self._data.each[place]
        if metadata.recipe is None:
            raise InputError(
                f"{folder} has no feature of samples, and was converted or not "
                "recorded from audio files, so there is nothing to listen to."
            )
        if not self._inputs:
            raise OptionError(
                "input",
                "is needed, because the examples have no feature of samples: name what "
                "the data set was recorded from, and the windows are decoded again",
            )
        recorded = read_recorded(folder, metadata)
        clips: set[int] = set()
        for which, example in self._examples.items():
            other, split, number = self._place(*which)
            if other == place and not self._stored(example):
                clips.add(int(recorded.clip[recorded.of_split(split)[number]]))
        self._decoders[place] = DecodeAgain(recorded, self._inputs, clips)
        return self._decoders[place]


def sound_name(split: str, number: int, example: Mapping[str, Any]) -> str:
    """Returns the name of an example's file: ``train-000012-owl_night-3.5s``."""
    parts = [split, f"{number:06}"]
    if isinstance(path := example.get("filepath"), str):
        parts.append(os.path.splitext(path)[0][-_LONGEST_NAME:])
    if (start_s := start_of(example)) is not None:
        parts.append(f"{start_s:.6g}s")
    if example.get("copy"):
        parts.append(f"copy{int(example['copy'])}")
    return re.sub(r"[^\w.=+-]+", "_", "-".join(parts))


def save_wav(sound: Sound, path: str) -> None:
    """Writes a sound to a WAV file on this machine; its folder is made.

    Floating-point samples stay so, also beyond full scale, and int16 stays int16.

    Raises
    ------
    OptionError
        If the path is on no file system of this machine.
    OutputError
        If it cannot be written.
    """
    import soundfile

    if not files.is_local(path):
        raise OptionError("save_wav", "must be a folder on this machine", path)
    dtype, subtype = _IN_WAV[sound.samples.dtype.name]
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        samples = sound.samples.astype(dtype).T
        soundfile.write(path, samples, sound.rate, subtype=subtype)
    except (OSError, soundfile.LibsndfileError) as error:
        raise OutputError(
            f"{path} cannot be written: {error}. Give another folder, or free some "
            "space."
        ) from error
