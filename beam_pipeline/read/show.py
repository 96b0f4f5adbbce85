"""Some examples of a data set for people, and the samples that they hold."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.side_by_side import Folders, open_data_sets
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.parameters import check_text, check_whole
from beam_pipeline.read import example_view
from beam_pipeline.read.choices import Split
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
        """Returns what each example is: its number, and its split, if several."""
        records = self.records
        place = f" of {records.split}" if len(records.metadata.splits) > 1 else ""
        return [f"example {number}{place}" for number in records.numbers.tolist()]

    def __repr__(self) -> str:
        metadata = self.records.metadata
        texts = (
            example_view.describe_example(example, metadata) for example in self.records
        )
        pairs = zip(self.titles(), texts, strict=True)
        return "\n".join(f"{title}\n{text}" for title, text in pairs)

    def _repr_html_(self) -> str:
        pairs = zip(self.titles(), self.records, strict=True)
        return "".join(html_line(title) + e._repr_html_() for title, e in pairs)

    def save_wav(self, folder: PathLike) -> Iterator[str]:
        """Writes the samples of each into a folder; yields the path of each file.

        Its name is made of split, number, clip and second. See :func:`save_wav`.

        Raises
        ------
        InputError
            If they hold no samples.
        """
        folder, records = files.path_text("save_wav", folder), self.records
        for number, example in zip(records.numbers.tolist(), records, strict=True):
            sound = stored_sound(example, records.metadata)
            if sound is None:
                raise InputError(
                    f"{records.folder} has no feature of samples to save. "
                    "`Records.source` says which stretch of which file an example is."
                )
            name = _sound_name(records.split, number, example)
            path = os.path.join(folder, f"{name}.wav")
            save_wav(sound, path)
            yield path

    def plot(self, path: PathLike) -> None:
        """Draws them into a picture; see :func:`.plot_examples`."""
        path = files.path_text("path", path)
        example_view.plot_examples([*self.records], self.records.metadata, path)


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
        Default: all for a clip; or else ``train``, or else the largest.
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
        splits = open_data_sets(folder).metadata.splits
        largest = max(splits, key=lambda name: splits[name].examples)
        split = "train" if "train" in splits else largest
        if clip is not None:
            split = [*splits]
    every = records = open_records(folder, split)
    if clip is not None:
        records = records.of_clip(clip)
    if where is not None:
        records = records.where(where)
    total = len(records)
    if not total and len(every):
        raise InputError(f"Split {every.split} has no such example.")
    return Shown(records[sorted({i * total // n for i in range(n)} if total else ())])


def stored_sound(
    example: Mapping[str, Any], metadata: Metadata
) -> example_view.Sound | None:
    """Returns the samples of an example: ``signal``, or the first feature of samples.

    None if it holds none.
    """
    found = example_view.signals_of(example, metadata).values()
    return next((s for s in found if s.samples.dtype.name in _IN_WAV), None)


def _sound_name(split: str, number: int, example: Mapping[str, Any]) -> str:
    """Returns the name of an example's file: ``train-000012-owl_night-3.5s``."""
    parts = [split, f"{number:06}"]
    if isinstance(path := example.get("filepath"), str):
        parts.append(os.path.splitext(path)[0][-_LONGEST_NAME:])
    if (start_s := example_view.start_of(example)) is not None:
        parts.append(f"{start_s:.6g}s")
    if example.get("copy"):
        parts.append(f"copy{int(example['copy'])}")
    return re.sub(r"[^\w.=+-]+", "_", "-".join(parts))


def save_wav(sound: example_view.Sound, path: str) -> None:
    """Writes a sound to a WAV file on this machine; its folder is made.

    Floating-point samples stay so, also beyond full scale, and int16 stays int16.

    Raises
    ------
    OptionError
        If the path is on no file system of this machine.
    OutputError
        If the folder or the file cannot be made.
    """
    import soundfile

    if not files.is_local(path):
        raise OptionError("save_wav", "must be a folder on this machine", path)
    dtype, subtype = _IN_WAV[sound.samples.dtype.name]
    files.make_folder(os.path.dirname(path) or ".")
    samples = sound.samples.astype(dtype).T
    with files.replacing(path) as file:
        soundfile.write(file, samples, sound.rate, format="WAV", subtype=subtype)
