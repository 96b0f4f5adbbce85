"""The findings of an audit: clips that have something in common, by kind.

:mod:`.audit` finds them; the command line prints them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.audio.fingerprint import SKETCH_BITS
from beam_pipeline.html_tables import html_line, html_table
from beam_pipeline.inputs.splits import GROUP_SEPARATOR

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

FILE, GROUP, AUDIO, PARTS, SIMILAR = "file", "group", "audio", "parts", "similar"
KINDS = (FILE, GROUP, AUDIO, PARTS, SIMILAR)

# What a notebook shows of an audit.
FINDINGS_SHOWN, CLIPS_SHOWN = 10, 4


class FoundClip(NamedTuple):
    """A clip of a finding; ``interval`` is its start and end in its file in seconds."""

    split: str
    filepath: str
    interval: tuple[float, float]
    label: str | None


class Finding(NamedTuple):
    """Clips that have something in common.

    Attributes
    ----------
    kind : str
        One of ``KINDS``.
    across : bool
        Whether the clips are in several splits.
    clips : tuple of FoundClip
    detail : str
        What the clips have in common, where the kind does not say it all: the group,
        the hash of the samples, how much sketches differ, the classes.
    """

    kind: str
    across: bool
    clips: tuple[FoundClip, ...]
    detail: str

    def to_json(self) -> dict[str, Any]:
        """Returns the finding as JSON values."""
        return {
            "kind": self.kind,
            "across": self.across,
            "detail": self.detail,
            "clips": [
                {
                    "split": clip.split,
                    "path": clip.filepath,
                    "start_s": clip.interval[0],
                    "end_s": clip.interval[1],
                    "class": clip.label,
                }
                for clip in self.clips
            ],
        }


@dataclass(frozen=True)
class Clusters:
    """Sets of clips: cluster k is ``rows[bounds[k] : bounds[k + 1]]``."""

    rows: Integers
    bounds: Integers

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def select(self, wanted: Mask) -> Clusters:
        """Returns the clusters for which ``wanted`` is true."""
        sizes = np.diff(self.bounds)
        rows = self.rows[np.repeat(wanted, sizes)]
        return Clusters(rows, np.r_[0, np.cumsum(sizes[wanted])])

    def differing(self, values: Integers) -> Mask:
        """Returns for each cluster whether ``values`` differ between its clips."""
        if not len(self):
            return np.zeros(0, np.bool_)
        of_rows, firsts = values[self.rows], self.bounds[:-1]
        least = np.minimum.reduceat(of_rows, firsts)
        differ: Mask = np.maximum.reduceat(of_rows, firsts) > least
        return differ


NOTHING = Clusters(np.zeros(0, np.int64), np.zeros(1, np.int64))


def _none() -> Mask:
    return np.zeros(0, np.bool_)


@dataclass(frozen=True, repr=False)
class Findings:
    """All findings of one kind. Iterating creates them one by one, leaks first.

    Attributes
    ----------
    kind : str
        One of ``KINDS``.
    missing : str
        The option that the data set was recorded without, so that this kind was not
        checked; empty if it was checked.
    complete : bool
        False if there may be more findings, because too many clips are alike to compare
        all pairs.
    clusters : Clusters
        The clips of each finding.
    across, mixed : numpy.ndarray of bool
        For each cluster, whether its clips are in several splits, and whether they have
        several classes.
    table : pyarrow.Table
        The clips, one row each; clusters index its rows.
    """

    kind: str
    missing: str = ""
    complete: bool = True
    clusters: Clusters = NOTHING
    across: Mask = field(default_factory=_none)
    mixed: Mask = field(default_factory=_none)
    table: Any = None

    def __len__(self) -> int:
        return len(self.clusters)

    def __repr__(self) -> str:
        if self.missing:
            return f"<Findings of {self.kind}: recorded without {self.missing}>"
        return f"<Findings of {self.kind}: {len(self)}, {self.leaks} across splits>"

    @property
    def leaks(self) -> int:
        """The number of findings across splits."""
        return int(self.across.sum())

    def __iter__(self) -> Iterator[Finding]:
        rows, bounds = self.clusters.rows, self.clusters.bounds
        for k in np.lexsort((rows[bounds[:-1]], ~self.across)):
            clips = self.table.take(rows[bounds[k] : bounds[k + 1]]).to_pydict()
            yield _finding(self.kind, bool(self.across[k]), bool(self.mixed[k]), clips)


def _finding(
    kind: str, across: bool, mixed: bool, values: Mapping[str, Sequence[Any]]
) -> Finding:
    names = ("split", "path", "start", "frames", "sample_rate_hz", "class")
    clips = tuple(
        FoundClip(split, path, (start / rate, (start + frames) / rate), label)
        for split, path, start, frames, rate, label in zip(
            *(values[name] for name in names), strict=True
        )
    )
    details = []
    if kind == GROUP:
        details.append(values["group"][0].replace(GROUP_SEPARATOR, ", "))
    elif kind == AUDIO:
        details.append(values["content"][0].hex())
    elif kind == SIMILAR:
        sketches = np.frombuffer(b"".join(values["sketch"]), np.uint8)
        bits = np.unpackbits(sketches.reshape(len(clips), -1), axis=1)
        most = int((bits[0] != bits).sum(axis=1).max())
        details.append(f"{most} of {SKETCH_BITS} bits differ from the first")
    if mixed:
        classes = dict.fromkeys(str(clip.label) for clip in clips)
        details.append(f"classes {', '.join(classes)}")
    return Finding(kind, across, clips, "; ".join(details))


@dataclass(frozen=True, repr=False)
class Audit:
    """The findings in a data set, by kind, in the order of ``KINDS``."""

    clips: int
    splits: tuple[str, ...]
    kinds: dict[str, Findings]

    def __repr__(self) -> str:
        kinds = ", ".join(map(repr, self.kinds.values()))
        return f"<Audit of {self.clips:,} clips: {kinds}>"

    def _repr_html_(self) -> str:
        rows = [
            (kind, "not recorded", "", "")
            if found.missing
            else (
                kind, found.leaks, len(found) - found.leaks, int(found.mixed.sum()),
            )
            for kind, found in self.kinds.items()
        ]  # fmt: skip
        header = ("in common", "across splits", "within one", "with several classes")
        first = [
            (
                finding.kind,
                "across splits" if finding.across else "within one",
                ", ".join(clip.filepath for clip in finding.clips[:CLIPS_SHOWN]),
                len(finding.clips),
            )
            for finding in islice(self, FINDINGS_SHOWN)
        ]
        columns = ("in common", "where", "first clips", "clips")
        return (
            html_line(f"{self.clips:,} clips in {', '.join(self.splits)}")
            + html_table(header, rows)
            + (html_table(columns, first) if first else "")
        )

    @property
    def leaks(self) -> int:
        """The number of findings across splits, of all kinds."""
        return sum(found.leaks for found in self.kinds.values())

    def __iter__(self) -> Iterator[Finding]:
        for found in self.kinds.values():
            yield from found
