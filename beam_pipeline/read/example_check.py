"""Checks the examples of one shard, block by block: features, clips and windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import MANIFEST, WINDOWS
from beam_pipeline.dataset.problem_lines import Lines, differ
from beam_pipeline.dataset.recorded_windows import RecordedWindows
from beam_pipeline.examples.record_parser import (
    BatchMaker,
    ExampleMaker,
    RecordParser,
    Stored,
)
from beam_pipeline.examples.spec import INT64_LIST, FeatureSpec
from beam_pipeline.permutation import Integers
from beam_pipeline.recipe.values import VALID_FRAMES

# A block is checked at once when it has so many bytes, or so many examples.
BLOCK_BYTES = 2 << 20
BLOCK_EXAMPLES = 256

# Of one shard; of the others, only the number is said.
MOST_LINES = 20


class Expected:
    """What each example of a split must hold, by the tables of the data set.

    Parameters
    ----------
    recorded : RecordedWindows
    split : str
    metadata : Metadata
    """

    def __init__(self, recorded: RecordedWindows, split: str, metadata: Metadata):
        self._recorded = recorded
        self._rows = recorded.of_split(split)
        specs, manifest = metadata.features, recorded.manifest
        self._of_clip = {
            name: manifest[column]
            for name, column in (
                ("filepath", "path"),
                ("index", "index"),
                ("fs", "sample_rate_hz"),
            )
            if name in specs
        }
        assert metadata.recipe is not None
        self._marks_padding = metadata.recipe.windows.mark_padding
        has_events = metadata.recipe.events.source is not None
        if "class" in specs and not has_events:
            self._of_clip["class"] = manifest["class"]
        for name, spec in specs.items():
            column = next((c for c in (name + "_", name) if c in manifest), None)
            if spec.description == f"column {name}" and column is not None:
                self._of_clip.setdefault(name, manifest[column])

    def columns(self, numbers: Integers) -> dict[str, Any]:
        """Returns the columns of the examples with some numbers in the split."""
        rows = self._rows[numbers[numbers < len(self._rows)]]
        clips = self._recorded.clip[rows]
        columns = {name: values[clips] for name, values in self._of_clip.items()}
        columns["win_start_idx"] = self._recorded.start[rows]
        columns["copy"] = self._recorded.copy[rows]
        if self._marks_padding:
            columns[VALID_FRAMES] = self._recorded.frames[rows]
        return columns


class ExampleCheck:
    """Checks the examples of one shard, as they are read.

    Attributes
    ----------
    lines : Lines
        The problems with them.
    checked : int
        How many there are.

    Parameters
    ----------
    metadata : Metadata
    where : str
        The shard, for the lines.
    split : str
    first : int
        The number of the shard's first example in the split.
    expected : Expected, optional
        Default: the data set has no table of windows.
    """

    def __init__(
        self,
        metadata: Metadata,
        where: str,
        split: str,
        first: int,
        expected: Expected | None = None,
    ):
        specs = metadata.features
        self._metadata, self._where, self._split = metadata, where, split
        self._first, self._expected = first, expected
        self._parser = RecordParser(specs, specs, only_these=True)
        shapes = {spec.shape_in for spec in specs.values()}
        names = [name for name in specs if name not in shapes]
        fixed = [n for n in names if _is_stackable(specs[n])]
        self._fixed = fixed
        self._others = [n for n in names if n not in fixed]
        self._maker = ExampleMaker(self._parser, self._others)
        self._block: list[tuple[int, int, bytes]] = []
        self._bytes = 0
        self.lines, self.checked = Lines(MOST_LINES, where), 0

    def add(self, start: int, record: bytes) -> None:
        """Adds an example whose member begins at a byte of the file."""
        number = self._first + self.checked
        self.checked += 1
        self._block.append((number, start, record))
        self._bytes += len(record)
        if self._bytes >= BLOCK_BYTES or len(self._block) == BLOCK_EXAMPLES:
            self.flush()

    def flush(self) -> None:
        """Checks the examples that were added since."""
        block, self._block, self._bytes = self._block, [], 0
        good: list[tuple[int, int]] = []
        stored: list[Stored] = []
        others: list[Mapping[str, Any]] = []
        for number, start, record in block:
            try:
                found = self._parser.stored(record, 0, len(record))
                others.append(self._maker.make(found, dict))
                stored.append(found)
                good.append((number, start))
            except ValueError as error:
                self._problem(number, start, str(error))
        if not good:
            return
        batch = BatchMaker(self._parser, self._fixed, len(good))
        for place, found in enumerate(stored):
            batch.put(place, found)
        columns = batch.finish()
        for name in self._others:
            columns[name] = [example.get(name) for example in others]
        self._check_targets(columns, good)
        self._compare(columns, good)

    def _problem(self, number: int, start: int, problem: str) -> None:
        self.lines.add(
            f"{self._where}: example {number} of {self._split}, at byte {start}: "
            f"{problem}"
        )

    def _check_targets(
        self, columns: Mapping[str, Any], places: Sequence[tuple[int, int]]
    ) -> None:
        """Compares the targets with the classes."""
        named, target = columns.get("class"), columns.get("target")
        is_index = _is_index(self._metadata.features.get("target"))
        if named is None or target is None or not is_index:
            return
        numbers = {label: number for number, label in enumerate(self._metadata.classes)}
        meant = [numbers.get(label) for label in named]
        wrong = differ(np.array(target, object), np.array(meant, object))
        for k in np.flatnonzero(wrong).tolist():
            self._problem(
                *places[k],
                f"target is {target[k]}, but its class {named[k]!r} has the number "
                f"{meant[k]}",
            )

    def _compare(
        self, columns: Mapping[str, Any], places: Sequence[tuple[int, int]]
    ) -> None:
        """Compares the examples with the table of windows."""
        if self._expected is None:
            return
        numbers = np.array([number for number, _ in places], np.int64)
        expected = self._expected.columns(numbers)
        for name, meant in expected.items():
            if name not in columns:
                continue
            found = columns[name][: len(meant)]
            dtype = self._metadata.features[name].dtype
            if dtype == "float32":  # the manifest keeps all digits
                meant = _as_float32(meant)
            for k in np.flatnonzero(differ(found, meant)).tolist():
                self._problem(
                    *places[k],
                    f"{name} is {found[k]!r}; {MANIFEST} and {WINDOWS} have "
                    f"{meant[k]!r} there",
                )


def _is_stackable(spec: FeatureSpec) -> bool:
    """Whether the values of several examples make one array."""
    return spec.is_fixed and spec.shape_in is None


def _as_float32(values: Any) -> Any:
    if values.dtype != object:
        return values.astype(np.float32)
    return [np.asarray(value, np.float32) for value in values]


def _is_index(spec: FeatureSpec | None) -> bool:
    return spec is not None and spec.encoding == INT64_LIST and spec.shape == ()
