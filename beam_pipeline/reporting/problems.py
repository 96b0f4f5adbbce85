"""What may be wrong with a data set, in the order in which to look at it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import islice, product, zip_longest
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.read.audit import KINDS, Audit
from beam_pipeline.reporting.samples import Sample, codes_of

WRONG, LOOK = "wrong", "look"
FILES_SHOWN = 100
# There may be a million; silence among the first of them is shown after sounds.
_FINDINGS_READ = 10 * FILES_SHOWN

# A class is suspicious if so many of its examples reach full scale.
_CLIPPED_SHARE, _CLIPPED_EXAMPLES = 0.001, 0.2
_OFFSET = 0.2
_FEW_GROUPS = 3
_FAR_OUT = 30.0

_KINDS = {
    "file": "the same file",
    "group": "the same group",
    "audio": "the same samples",
    "parts": "overlapping parts of one file",
    "similar": "nearly the same audio",
}

# Option that was not given -> what nobody has looked for.
_UNCHECKED = {
    "group_by": "Not looked for: groups in several splits. `--group-by` names them.",
    "fingerprint": "Not looked for: the same audio in several files. `--fingerprint` "
    "finds it.",
    "input": "Not looked for: clipping and DC offsets, because the examples hold no "
    "samples. `report --input` decodes them again.",
}


class Problem(NamedTuple):
    """Something to look at.

    Attributes
    ----------
    level : str
        ``wrong`` or ``look``.
    title, text : str
    files : sequence of str
    samples : sequence of Sample
        Examples that let one hear it.
    """

    level: str
    title: str
    text: str
    files: Sequence[str] = ()
    samples: Sequence[Sample] = ()

    def to_json(self, ids: Mapping[int, int]) -> dict[str, Any]:
        """``ids`` has the number of each sample on the page, by its identity."""
        shown = [ids[id(sample)] for sample in self.samples if id(sample) in ids]
        return {
            "level": self.level,
            "title": self.title,
            "text": self.text,
            "files": list(self.files),
            "samples": shown,
        }


def find_problems(
    metadata: Metadata,
    audited: Audit | None,
    table: Any,
    silence: Silence,
    samples: Sequence[Sample],
    rejects: Sequence[Mapping[str, Any]],
) -> list[Problem]:
    """Returns what may be wrong, what is certainly wrong first.

    Parameters
    ----------
    audited : Audit or None
        None if the data set was not recorded from audio files.
    table : pyarrow.Table or None
        The table of windows.
    silence : Silence
        That of the table.
    samples : sequence of Sample
        Examples that were measured.
    rejects : sequence of mapping
        Those of :func:`.overview.describe_data_set`.
    """
    found = [
        *_rejects(metadata, rejects),
        *_leaks(audited, samples, silence.whole),
        *_silent(silence),
        *_clipped(samples),
        *_features(metadata),
        *_offsets(samples),
        *_few(metadata, table),
        *_shares(metadata),
    ]
    return sorted(found, key=lambda problem: problem.level != WRONG)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _of_clips(samples: Sequence[Sample], most: int = 6) -> list[Sample]:
    """Returns the first sample of each of the first clips."""
    first = {str(s.values.get("filepath", id(s))): s for s in reversed(samples)}
    chosen = {id(sample) for sample in first.values()}
    return [sample for sample in samples if id(sample) in chosen][:most]


def paths_to_hear(
    audited: Audit | None, silent: Container[str], most: int = 12
) -> list[str]:
    """Returns the files of the first leaks, which a page lets one hear."""
    found: dict[str, None] = {}
    for kind in KINDS if audited else ():
        assert audited is not None
        for finding in islice(audited.of_kind(kind), most):
            if finding["across"] and not _is_silence(finding, silent):
                found.update((clip["path"], None) for clip in finding["clips"][:2])
    return list(found)[:most]


def name_unchecked(audited: Audit | None, samples: Sequence[Sample]) -> list[str]:
    """Returns what was not looked for, because it was not recorded."""
    options = dict.fromkeys(audited.not_compared.values()) if audited else {}
    if audited and not any(np.isfinite(sample.clipped) for sample in samples):
        options["input"] = None
    return [_UNCHECKED[option] for option in options]


def _is_silence(finding: Mapping[str, Any], silent: Container[str]) -> bool:
    return all(clip["path"] in silent for clip in finding["clips"])


def _leaks(
    audited: Audit | None, samples: Sequence[Sample], silent: Container[str]
) -> Iterator[Problem]:
    """Yields what the audit found, across splits and within them.

    Silence equals silence, which teaches little: it comes last.
    """
    if audited is None:
        return
    for kind, across in product(KINDS, (True, False)):
        total = audited.count(kind, across=across)
        if not total:
            continue
        of_kind = (f for f in audited.of_kind(kind) if f["across"] == across)
        chosen = sorted(
            islice(of_kind, _FINDINGS_READ),
            key=lambda each: _is_silence(each, silent),
        )
        rows: list[str] = []
        paths: set[str] = set()
        for finding in chosen[:FILES_SHOWN]:
            clips = finding["clips"][:6]
            row = "  =  ".join(f"{c['split']}: {c['path']}" for c in clips)
            if _is_silence(finding, silent):
                rows.append(f"{row} (silence)")
            else:
                rows.append(row)
                paths.update(clip["path"] for clip in clips)
        what = _KINDS[kind]
        title = f"Clips of one split have {what}"
        text = f"{_count(total, 'finding')} of the audit."
        if across:
            title = f"Splits share {what}"
            text += " What a model learns in training is asked again in the test."
        heard = [s for s in samples if s.values.get("filepath") in paths]
        level = WRONG if across else LOOK
        yield Problem(level, title, text, rows, _of_clips(heard))


class Silence(NamedTuple):
    """Which files are digital silence.

    Attributes
    ----------
    whole, partly : set of str
        The files of which every window is silent, and those of which some are.
    windows : int
        How many windows of the latter are silent.
    """

    whole: set[str]
    partly: set[str]
    windows: int


def find_silence(table: Any) -> Silence:
    """Returns the silence in a table of windows; ``table`` may be None."""
    if table is None or not table.num_rows:
        return Silence(set(), set(), 0)
    levels = table["level_db"].to_numpy(zero_copy_only=False)
    paths, codes = codes_of(table["path"])
    silent = np.bincount(codes[levels == -np.inf], minlength=len(paths))
    whole = silent == np.bincount(codes, minlength=len(paths))
    partly = (silent > 0) & ~whole
    files, some = ({paths[k] for k in np.flatnonzero(of)} for of in (whole, partly))
    return Silence(files, some, int(silent[partly].sum()))


def _silent(silence: Silence) -> Iterator[Problem]:
    """Files of which every window is silent, and those of which some are."""
    if silence.whole:
        text = "Every window of these files is digital silence."
        yield Problem(
            WRONG,
            f"{_count(len(silence.whole), 'file')} without any sound",
            text,
            sorted(silence.whole)[:FILES_SHOWN],
        )
    if silence.partly:
        yield Problem(
            LOOK,
            f"{_count(silence.windows, 'silent window')} in files with sound",
            "`--keep 'energy(above_db=-60)'` leaves such windows out.",
            sorted(silence.partly)[:FILES_SHOWN],
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
        hot.sort(key=lambda each: -each.clipped)
        share = float(np.mean([each.clipped for each in hot]))
        yield Problem(
            WRONG,
            f"Class {label} is clipped" if label else "The audio is clipped",
            f"Of {_count(len(some), 'example')} that were measured, {len(hot)} reach "
            f"full scale, on average in {share:.1%} of their samples.",
            sorted({str(each.values.get("filepath", "")) for each in hot} - {""}),
            _of_clips(hot),
        )


def _offsets(samples: Sequence[Sample]) -> Iterator[Problem]:
    shifted = [s for s in samples if np.isfinite(s.offset) and s.offset > _OFFSET]
    if shifted:
        shifted.sort(key=lambda each: -each.offset)
        yield Problem(
            LOOK,
            "Signals with a DC offset",
            f"In {len(shifted)} of {_count(len(samples), 'example')} that were "
            f"measured, the mean exceeds {_OFFSET:.0%} of the root mean square. "
            "`--stream 'high_pass(cutoff_hz=20)'` removes it.",
            sorted({str(each.values.get("filepath", "")) for each in shifted} - {""}),
            _of_clips(shifted),
        )


def _features(metadata: Metadata) -> Iterator[Problem]:
    """Values that are not finite, constant bins, and values far out."""
    constant: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for split, entry in metadata.splits.items():
        for name, found in entry.statistics.get("features", {}).items():
            where = f"{name} in {split}"
            if found.get("nonfinite_share"):
                yield Problem(
                    WRONG,
                    f"{where}: values that are not finite",
                    f"{found['nonfinite_share']:.3%} of them are NaN or infinite.",
                )
            bins = _constant_bins(found.get("bins", {}))
            if bins and entry.examples > 1:
                constant[name][split] = bins
            if "bins" in found:
                yield from _far_out(where, found)
    for name, of_splits in constant.items():
        bins = sorted(set().union(*of_splits.values()))
        splits: dict[str, list[str]] = defaultdict(list)
        for split, of in of_splits.items():
            splits[_ranges(of)].append(split)
        where = "; ".join(f"{of} ({', '.join(s)})" for of, s in splits.items())
        yield Problem(
            WRONG,
            f"{name}: {_count(len(bins), 'constant bin')}",
            f"The same value in all examples: bin {where}. A model learns nothing from "
            "it. Check the band's limits, the filters, and whether the files had a "
            "lower sample rate.",
        )


def _constant_bins(bins: Mapping[str, Any]) -> list[int]:
    """Returns the numbers of the bins whose deviation is that of rounding."""
    mean, std = (np.array(bins.get(k, []), np.float64) for k in ("mean", "std"))
    same = std <= 1e-7 * np.maximum(np.abs(mean), 1e-30)
    numbers: list[int] = np.flatnonzero(same).tolist()
    return numbers


def _ranges(numbers: Sequence[int], most: int = 10) -> str:
    """Returns ascending numbers as text: ``0, 51 to 63``."""
    edges = np.flatnonzero(np.diff(numbers) > 1) + 1
    runs = np.split(np.array(numbers), edges)
    listed = [f"{r[0]}" if len(r) == 1 else f"{r[0]} to {r[-1]}" for r in runs[:most]]
    return ", ".join(listed) + (" ..." if len(runs) > most else "")


def _far_out(where: str, statistics: Mapping[str, Any]) -> Iterator[Problem]:
    """Values of a spectrum that no other value is near to."""
    middle, spread = statistics["mean"], statistics["std"]
    if not spread:
        return
    far = {
        f"{key}imum, {statistics[key]:.4g},": abs(statistics[key] - middle) / spread
        for key in ("min", "max")
        if abs(statistics[key] - middle) > _FAR_OUT * spread
    }
    if far:
        listed = " and ".join(f"the {what} by {n:.0f}" for what, n in far.items())
        yield Problem(
            LOOK,
            f"{where}: values far out",
            f"They differ from the mean, {middle:.4g}: {listed} standard deviations.",
        )


def _rejects(
    metadata: Metadata, rejects: Sequence[Mapping[str, Any]]
) -> Iterator[Problem]:
    """The rejects, beginning with one of each kind of error."""
    if metadata.rejected:
        by_kind = zip_longest(*(kind["files"] for kind in rejects))
        files = [file for one_of_each in by_kind for file in one_of_each if file]
        share = metadata.rejected / max(metadata.clips, 1)
        yield Problem(
            LOOK,
            f"{_count(metadata.rejected, 'clip')} rejected",
            f"{share:.1%} of {metadata.clips:,}. The section Rejects lists them by "
            "their reasons.",
            [f"{each['path']}: {each['reason']}" for each in files][:FILES_SHOWN],
        )


def _few(metadata: Metadata, table: Any) -> Iterator[Problem]:
    """Classes that a split lacks, or that come from few groups."""
    for name, entry in metadata.splits.items():
        lacking = [label for label, n in entry.examples_per_class.items() if not n]
        if lacking and entry.examples:
            yield Problem(
                LOOK,
                f"Split {name} lacks {len(lacking)} of {len(metadata.classes)} classes",
                f"It has no example of {', '.join(lacking[:20])}.",
            )
    if table is None or not {"class", "group"} <= set(table.column_names):
        return
    labels, of_label = codes_of(table["class"])
    _, of_group = codes_of(table["group"])
    known = (of_label >= 0) & (of_group >= 0)
    pairs = np.unique(np.stack([of_label[known], of_group[known]]), axis=1)
    groups = Counter(labels[k] for k in pairs[0].tolist())
    few = {label: n for label, n in groups.items() if n < _FEW_GROUPS}
    if few:
        listed = ", ".join(f"{label} ({n})" for label, n in sorted(few.items())[:20])
        yield Problem(
            LOOK,
            f"{len(few)} of {len(groups)} classes come from few groups",
            f"Classes with fewer than {_FEW_GROUPS} groups: {listed}. A model may "
            "learn the group (the recorder, the speaker, the day) in their place.",
        )


def _shares(metadata: Metadata) -> Iterator[Problem]:
    if metadata.recipe is None:
        return
    shares = metadata.recipe.splits.hashed_shares() or {}
    total = sum(split.seconds for split in metadata.splits.values())
    for name, share in shares.items():
        entry = metadata.splits.get(name)
        held = entry.seconds / total if entry and total else 0.0
        asked = share / sum(shares.values())
        if abs(held - asked) > max(0.05, 0.25 * asked):
            yield Problem(
                LOOK,
                f"Split {name} has {held:.0%} of the audio; {asked:.0%} was asked for",
                "Whole groups go into one split. `--stratify` comes nearer, as far as "
                "the groups allow.",
            )
