"""``metadata.json``: what a reader needs to know of a data set.

A data set of audio files has a recipe. One of elements of any structure has a structure
instead, and ``recorded_by`` says what recorded it.

The metadata hold no time, host or absolute path: equal data sets have equal metadata.
They have the SHA-256 of every other file that readers open, and one of their own
values, so that :func:`beam_pipeline.verify` finds whatever was changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from beam_pipeline.dataset.metadata_checks import check_metadata, short
from beam_pipeline.dataset.metadata_view import view_metadata
from beam_pipeline.dataset.output_folder import METADATA
from beam_pipeline.dataset.writer_versions import DISTRIBUTION
from beam_pipeline.errors import InputError
from beam_pipeline.examples.feature_description import describe_features
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.examples.structure import Structure, structure_from_json
from beam_pipeline.hashing import json_sha256
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.text import parse_json

if TYPE_CHECKING:
    from beam_pipeline.plan.shards import ShardInfo

FORMAT_VERSION = 1

# The field of the metadata with the SHA-256 of all others.
OWN_SHA256 = "sha256"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file beside the shards."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One file of a data set."""

    file: str
    examples: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class SplitEntry:
    """The counts of one split, and its shards in order.

    ``statistics`` are those of :mod:`beam_pipeline.write.statistics`, as JSON values.
    """

    examples: int
    clips: int = 0
    seconds: float = 0.0
    left_out: int = 0
    examples_per_class: Mapping[str, int] = field(default_factory=dict)
    seconds_per_class: Mapping[str, float] = field(default_factory=dict)
    statistics: Mapping[str, Any] = field(default_factory=dict)
    shards: tuple[ShardEntry, ...] = ()


@dataclass(frozen=True)
class Elements:
    """What the metadata of a data set of elements have instead of a recipe.

    Attributes
    ----------
    recorded_by : str
        The function or command that recorded the data set.
    options : mapping
        Its arguments, as JSON values.
    structure : Structure or None
        The structure of an element; None if it is a dict of all features.
    batch_size : int or None
        The size of the batches that a reader restores; None if there were none.
    drop_remainder : bool
        Whether a last batch that is smaller was left out.
    """

    recorded_by: str
    options: Mapping[str, Any] = field(default_factory=dict)
    structure: Structure | None = None
    batch_size: int | None = None
    drop_remainder: bool = False


@dataclass(frozen=True, repr=False)
class Metadata:
    """A data set's ``metadata.json``.

    Attributes
    ----------
    recipe : Recipe or None
        With the same inputs, it gives the same data set. None if the data set was not
        recorded from audio files.
    features : mapping
        Name to spec, for each feature of an example.
    classes : tuple of str
        ``classes[target]`` is the class of an example.
    splits : mapping
        Name to entry.
    clips, rejected, ignored : int
        Number of listed clips, of rejected clips, and of files without an audio suffix.
    writer : mapping
        Versions of this package and of the libraries that decide bytes.
    files : mapping
        Name to entry, for each file beside the shards that readers open.
    elements : Elements or None
        None if the data set was recorded from audio files.
    listing_sha256 : str
        A hash of what the inputs say of each clip, see :class:`.ListingSummary`.
    left_out : mapping or None
        How many clips are left out, by
        :func:`beam_pipeline.plan.clips.reasons_to_leave_out`. None if the recipe
        leaves out none.
    """

    recipe: Recipe | None
    features: Mapping[str, FeatureSpec]
    classes: tuple[str, ...]
    splits: Mapping[str, SplitEntry]
    clips: int = 0
    rejected: int = 0
    ignored: int = 0
    writer: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    elements: Elements | None = None
    listing_sha256: str = ""
    left_out: Mapping[str, int] | None = None

    def __repr__(self) -> str:
        splits = ", ".join(f"{n} {s.examples:,}" for n, s in self.splits.items())
        clips = f" of {self._recorded_clips():,} clips" if self.recipe else ""
        classes = f"{len(self.classes):,} classes; " if self.classes else ""
        features = ", ".join(
            f"{name} {spec.dtype}" + (f" {list(spec.shape)}" if spec.shape else "")
            for name, spec in self.features.items()
        )
        return f"<Metadata: examples{clips}: {splits}; {classes}features {features}>"

    def _repr_html_(self) -> str:
        clips = None if self.recipe is None else self._recorded_clips()
        return view_metadata(self.splits, self.features, self.classes, clips)

    def _recorded_clips(self) -> int:
        return self.clips - self.rejected - sum((self.left_out or {}).values())

    @property
    def class_names(self) -> list[str]:
        """The classes as a list, under the name that Keras has for them."""
        return list(self.classes)

    def shards(self) -> Iterator[ShardEntry]:
        """Yields the shards of all splits."""
        for split in self.splits.values():
            yield from split.shards

    def feature_description(
        self,
    ) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
        """Returns what plain TensorFlow needs to parse the examples.

        ::

            description = Metadata.load("records/").feature_description()
            tf.io.parse_single_example(record, description)

        Returns
        -------
        dict, or (dict, dict)
            Name to ``tf.io.FixedLenFeature``; ``tf.io.VarLenFeature`` for a feature
            whose shape differs between examples, or that some of them lack. If the data
            set has sequences, two of them, the context and the steps of
            ``tf.io.parse_single_sequence_example``, with
            ``tf.io.FixedLenSequenceFeature`` for the steps. A feature whose encoding is
            ``raw``, ``tensor``, ``png`` or ``jpeg`` is described as a text: its bytes.
        """
        context, sequences = describe_features(self.features)
        return (context, sequences) if sequences else context

    def to_json(self) -> dict[str, Any]:
        """Returns the content of ``metadata.json``."""
        if self.elements is not None:
            return self._elements_to_json(self.elements)
        assert self.recipe is not None
        return {
            "format_version": FORMAT_VERSION,
            "writer": dict(self.writer),
            "recipe": self.recipe.to_json(),
            "recipe_sha256": self.recipe.sha256(),
            "features": {name: s.to_json() for name, s in self.features.items()},
            "classes": list(self.classes),
            "num_classes": len(self.classes),
            "inputs": {
                "clips": self.clips,
                "rejected": self.rejected,
                "ignored_files": self.ignored,
                "listing_sha256": self.listing_sha256,
                **({} if self.left_out is None else {"left_out": dict(self.left_out)}),
            },
            "files": self._files_to_json(),
            "splits": {
                name: {
                    "examples": split.examples,
                    "clips": split.clips,
                    "seconds": split.seconds,
                    "left_out": split.left_out,
                    "examples_per_class": dict(split.examples_per_class),
                    "seconds_per_class": dict(split.seconds_per_class),
                    "statistics": dict(split.statistics),
                    "shards": [asdict(shard) for shard in split.shards],
                }
                for name, split in self.splits.items()
            },
        }

    def _elements_to_json(self, elements: Elements) -> dict[str, Any]:
        sequences = any(spec.sequence for spec in self.features.values())
        structure = elements.structure
        batch = None
        if elements.batch_size is not None:
            batch = {
                "size": elements.batch_size,
                "drop_remainder": elements.drop_remainder,
            }
        return {
            "format_version": FORMAT_VERSION,
            "writer": dict(self.writer),
            "recorded_by": elements.recorded_by,
            "options": dict(elements.options),
            "record": f"tf.train.{'Sequence' if sequences else ''}Example",
            "structure": None if structure is None else structure.to_json(),
            "batch": batch,
            "features": {name: s.to_json() for name, s in self.features.items()},
            "classes": list(self.classes),
            "num_classes": len(self.classes),
            "files": self._files_to_json(),
            "splits": {
                name: {
                    "examples": split.examples,
                    "statistics": dict(split.statistics),
                    "shards": [asdict(shard) for shard in split.shards],
                }
                for name, split in self.splits.items()
            },
        }

    def _files_to_json(self) -> dict[str, Any]:
        return {name: asdict(entry) for name, entry in self.files.items()}

    def to_text(self) -> bytes:
        """Returns the text of ``metadata.json``: its content and the SHA-256 of it."""
        values = self.to_json()
        return to_text({**values, OWN_SHA256: json_sha256(values)})

    @classmethod
    def _elements_from_json(cls, values: Mapping[str, Any]) -> Metadata:
        structure, batch = values["structure"], values["batch"] or {}
        return cls(
            None,
            {n: FeatureSpec.from_json(n, v) for n, v in values["features"].items()},
            tuple(values["classes"]),
            {
                name: SplitEntry(
                    split["examples"],
                    statistics=split["statistics"],
                    shards=tuple(ShardEntry(**shard) for shard in split["shards"]),
                )
                for name, split in values["splits"].items()
            },
            writer=values["writer"],
            files=_files_from_json(values),
            elements=Elements(
                values["recorded_by"],
                values["options"],
                None if structure is None else structure_from_json(structure),
                batch.get("size"),
                batch.get("drop_remainder", False),
            ),
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Metadata:
        """Returns the metadata with this content, see :meth:`to_json`.

        Raises
        ------
        InputError
            If the format has another version.
        ValueError, KeyError, TypeError, AttributeError
            If the content is not that of metadata.
        """
        version = values.get("format_version")
        if version != FORMAT_VERSION:
            raise InputError(
                f"it has format version {short(repr(version))}, but the installed "
                f"{DISTRIBUTION} reads only format version {FORMAT_VERSION}. Install a "
                f"version of {DISTRIBUTION} that reads it."
            )
        check_metadata(values)
        if "recorded_by" in values:
            return cls._elements_from_json(values)
        # The hash is of the JSON in the file: later versions may add recipe fields.
        if json_sha256(values["recipe"]) != values["recipe_sha256"]:
            raise ValueError("recipe_sha256 is not the SHA-256 of the recipe")
        return cls(
            Recipe(**values["recipe"]),
            {n: FeatureSpec.from_json(n, v) for n, v in values["features"].items()},
            tuple(values["classes"]),
            {
                name: SplitEntry(
                    split["examples"],
                    split["clips"],
                    split["seconds"],
                    split["left_out"],
                    split["examples_per_class"],
                    split["seconds_per_class"],
                    split["statistics"],
                    tuple(ShardEntry(**shard) for shard in split["shards"]),
                )
                for name, split in values["splits"].items()
            },
            values["inputs"]["clips"],
            values["inputs"]["rejected"],
            values["inputs"]["ignored_files"],
            values["writer"],
            _files_from_json(values),
            listing_sha256=values["inputs"]["listing_sha256"],
            left_out=values["inputs"].get("left_out"),
        )

    @classmethod
    def parse(cls, text: str | bytes, where: str) -> Metadata:
        """Returns the metadata in the text of a file; errors name the file ``where``.

        Raises
        ------
        InputError
            If the text is not that of metadata.
        """
        try:
            return cls.from_json(parse_json(text))
        except InputError as error:  # it does not know the file
            raise InputError(f"{where}: {error}") from error
        except (
            ValueError, KeyError, TypeError, AttributeError, RecursionError,
        ) as error:  # fmt: skip
            raise InputError(
                f"{where} is not the metadata of a data set: {short(repr(error), 300)}"
                ". Restore the file, or record the data set again."
            ) from error

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Metadata:
        """Reads a data set's metadata.

        Raises
        ------
        InputError
            If the folder holds no finished data set.
        """
        path = files.join(files.absolute(os.fspath(folder)), METADATA)
        if not files.exists(path):
            raise InputError(
                f"{folder} holds no finished data set: it has no {METADATA}. If a run "
                "was interrupted, give its command again."
            )
        return cls.parse(files.read_bytes(path), path)


def to_text(values: Any) -> bytes:
    """Returns indented JSON that ends in a newline."""
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def _files_from_json(values: Mapping[str, Any]) -> dict[str, FileEntry]:
    return {name: FileEntry(**entry) for name, entry in values["files"].items()}


def file_entries(folder: str, names: Iterable[str]) -> dict[str, FileEntry]:
    """Returns the entries of files beside the shards, which must exist."""
    return {name: FileEntry(*files.hash_of(files.join(folder, name))) for name in names}


def shard_entry(info: ShardInfo) -> ShardEntry:
    """Returns the entry of a written shard in the metadata."""
    return ShardEntry(info.file, info.examples, info.bytes, info.sha256)
