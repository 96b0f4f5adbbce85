"""What may be wrong with a data set, in the order in which to look at it.

The checks of the metadata are those of :mod:`beam_pipeline.dataset.warn`. Here are the
checks that read the tables beside the shards, or examples.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import numpy as np

from beam_pipeline.audio.sketch import SKETCH_SECONDS
from beam_pipeline.dataset.folders import MANIFEST
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.warn import (
    LOOK,
    WRONG,
    Problem,
    metadata_problems,
    single_recordings,
)
from beam_pipeline.read.audit import KINDS, Audit
from beam_pipeline.text import counted

FILES_SHOWN = 100
_HEARD, _LEAKS_HEARD = 6, 12

# A class is suspicious if so many of its examples reach full scale.
_CLIPPED_SHARE, _CLIPPED_EXAMPLES = 0.001, 0.2


@dataclass(eq=False)
class Sample:
    """One example.

    Attributes
    ----------
    row : mapping
        The example's row in the table of windows.
    values : mapping
        The features of the example.
    why : list of str
        What it shows.
    label : str
        Its class, or classes.
    peak, clipped : float
        Of its sound: the largest magnitude; the share of samples at full scale. NaN
        without a sound.
    """

    row: Mapping[str, Any]
    values: Mapping[str, Any]
    why: list[str]
    label: str
    peak: float = float("nan")
    clipped: float = float("nan")

    @property
    def split(self) -> str:
        return str(self.row["split"])

    @property
    def number(self) -> int:
        """The position in the split."""
        return int(self.row["record"])

    @property
    def path(self) -> str:
        """Its file; empty without one."""
        return str(self.row.get("path", ""))


def report_problems(
    metadata: Metadata,
    audited: Audit | None,
    table: Any,
    samples: Sequence[Sample],
    rejects: Sequence[Mapping[str, Any]],
) -> list[Problem]:
    """Returns what may be wrong, what is certainly wrong first.

    Parameters
    ----------
    audited : Audit or None
        None if the data set was not recorded from audio files.
    table : pyarrow.Table
        The windows that are in the data set.
    samples : sequence of Sample
        Examples that were measured.
    rejects : sequence of mapping
        For each kind of error, how many ``files`` it has.
    """
    rates = table["sample_rate_hz"].unique().to_pylist() if audited else ()
    found = [
        *_rejects(metadata, rejects),
        *(_leaks(audited, samples) if audited else ()),
        *_silent(table),
        *_clipped(samples),
        *metadata_problems(metadata, rates),
        *single_recordings(_recordings(table)),
    ]
    return sorted(found, key=lambda problem: problem.level != WRONG)


def name_unchecked(
    metadata: Metadata,
    audited: Audit | None,
    table: Any,
    samples: Sequence[Sample],
) -> list[str]:
    """Returns what was not looked for, with the reason."""
    reasons: dict[str, str] = {}
    if audited is None:
        reasons["leaks"] = f"the data set has no {MANIFEST}"
    else:
        partly = {**audited.not_compared, **audited.incomplete}
        reasons |= {KINDS[kind]: reason for kind, reason in partly.items()}
        reasons[f"what clips share only after {SKETCH_SECONDS:g} s"] = "not compared"
    has_levels = False
    if "level_db" in table.column_names:
        has_levels = table["level_db"].null_count < len(table)
    if not has_levels:
        reasons["silent audio"] = "the levels of windows are not known"
    if not any(np.isfinite(sample.clipped) for sample in samples):
        reasons["clipped audio"] = (
            "the examples hold no samples; `report --input` takes those of the files"
        )
    splits = metadata.splits.values()
    if not any(split.statistics.get("features") for split in splits):
        reasons["constant and non-finite features"] = "there are no statistics"
    if metadata.recipe is None:
        reasons["rejects, classes that a split lacks"] = "no run of `record` wrote them"
    return [f"{what}: {reason}" for what, reason in reasons.items()]


def paths_to_hear(audited: Audit) -> list[str]:
    """Returns the files of the first leaks, which a page lets one hear."""
    found: dict[str, None] = {}
    for kind in KINDS:
        for finding in islice(audited.of_kind(kind), _LEAKS_HEARD):
            if finding["across"]:
                found.update((clip["path"], None) for clip in finding["clips"][:2])
    return list(found)[:_LEAKS_HEARD]


def _heard(level: str, title: str, text: str, samples: Sequence[Sample]) -> Problem:
    """Returns a problem of some samples, of which the first of each file is heard."""
    first = {sample.path or str(id(sample)): sample for sample in reversed(samples)}
    paths = sorted({sample.path for sample in samples} - {""})
    return Problem(level, title, text, paths, [*first.values()][: -_HEARD - 1 : -1])


def _rejects(
    metadata: Metadata, rejects: Sequence[Mapping[str, Any]]
) -> Iterator[Problem]:
    if metadata.rejected:
        files = [file for kind in rejects for file in kind["files"]]
        share = metadata.rejected / max(metadata.clips, 1)
        yield Problem(
            LOOK,
            f"{counted(metadata.rejected, 'clip')} rejected",
            f"{share:.1%} of {metadata.clips:,}. The section Rejects lists them by "
            "their reasons.",
            [f"{each['path']}: {each['reason']}" for each in files][:FILES_SHOWN],
        )


def _leaks(audited: Audit, samples: Sequence[Sample]) -> Iterator[Problem]:
    """Yields what the audit found, across splits and within them."""
    for kind, across in product(KINDS, (True, False)):
        total = audited.count(kind, across=across)
        if not total:
            continue
        of_kind = (f for f in audited.of_kind(kind) if f["across"] == across)
        rows: list[str] = []
        paths: set[str] = set()
        for finding in islice(of_kind, FILES_SHOWN):
            clips = finding["clips"][:6]
            rows.append("  =  ".join(f"{c['split']}: {c['path']}" for c in clips))
            paths.update(clip["path"] for clip in clips)
        text = f"{counted(total, 'finding')} of the audit."
        if across:
            text += " The test then asks what the model has seen in training."
        where = "across splits" if across else "within one split"
        title = f"{KINDS[kind].capitalize()} {where}"
        heard = [sample for sample in samples if sample.path in paths]
        problem = _heard(WRONG if across else LOOK, title, text, heard)
        yield problem._replace(files=rows)


def _silent(table: Any) -> Iterator[Problem]:
    """Files of which every window is silent."""
    import pyarrow.compute as pc

    if "level_db" not in table.column_names:
        return
    files = table.group_by("path").aggregate([("level_db", "max")])
    silent = files.filter(pc.field("level_db_max") == -np.inf)["path"].to_pylist()
    if silent:
        yield Problem(
            WRONG,
            f"{counted(len(silent), 'file')} without any sound",
            "Every window of these files is digital silence.",
            sorted(silent)[:FILES_SHOWN],
        )


def _clipped(samples: Sequence[Sample]) -> Iterator[Problem]:
    """Classes whose examples often reach full scale."""
    by_class: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if np.isfinite(sample.clipped):
            by_class[sample.label].append(sample)
    for label, some in sorted(by_class.items()):
        hot = [each for each in some if each.clipped > _CLIPPED_SHARE]
        if len(hot) < max(2, _CLIPPED_EXAMPLES * len(some)):
            continue
        share = float(np.mean([each.clipped for each in hot]))
        yield _heard(
            WRONG,
            f"Class {label} is clipped" if label else "The audio is clipped",
            f"Of {counted(len(some), 'example')} that were measured, {len(hot)} reach "
            f"full scale, on average in {share:.1%} of their samples.",
            sorted(hot, key=lambda each: -each.clipped),
        )


def _recordings(table: Any) -> dict[str, Counter[str]]:
    """Returns how many files of each class there are, by split."""
    names = ["split", "class", "input", "path"]
    found: dict[str, Counter[str]] = defaultdict(Counter)
    if set(names) <= set(table.column_names):
        for row in table.group_by(names).aggregate([]).to_pylist():
            found[row["split"]][row["class"] or ""] += 1
    return found
