"""The findings of ``audit`` as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from beam_pipeline.read.audit import AUDIO, FILE, GROUP, KINDS, PARTS, SIMILAR, Audit
from beam_pipeline.read.clean_manifest import Written

FINDINGS_SHOWN = 20  # of each kind
CLIPS_SHOWN = 3  # of each split

# Kind of finding -> what its clips have in common.
TITLES = {
    FILE: "same path",
    GROUP: "same group",
    AUDIO: "same audio",
    PARTS: "overlapping parts",
    SIMILAR: "near-identical audio",
}
# Option that the data set was recorded without -> what to do.
_NOT_RECORDED = {
    "group_by": "not recorded; name columns of the manifest with --group-by",
    "fingerprint": "not recorded; record with --fingerprint",
}


def summarise_audit(audit: Audit) -> str:
    """Returns a line for each kind of finding."""
    lines = [f"{audit.clips:,} clips in {', '.join(audit.splits)}"]
    return "\n".join([*lines, *(_describe_kind(audit, kind) for kind in KINDS)])


def describe_audit(audit: Audit) -> str:
    """Returns the summary, then some findings of each kind with some of their clips."""
    lines = [summarise_audit(audit)]
    for kind in KINDS:
        for finding in islice(audit.of_kind(kind), FINDINGS_SHOWN):
            lines += ["", *_describe_finding(finding)]
        more = audit.count(kind) - FINDINGS_SHOWN
        if more > 0:
            lines += ["", f"... and {more:,} more of {TITLES[kind]}; --json prints all"]
    return "\n".join(lines)


def _describe_kind(audit: Audit, kind: str) -> str:
    """Returns the numbers of findings of one kind, on one line."""
    if kind in audit.not_compared:
        return f"{TITLES[kind]}: {_NOT_RECORDED[audit.not_compared[kind]]}"
    leaks = audit.count(kind, across=True)
    mixed = audit.count(kind, mixed=True)
    text = describe_counts(kind, audit.count(kind), leaks, mixed)
    more = "; too many clips are alike to compare all"
    return f"{text}{more}" if kind in audit.incomplete else text


def describe_counts(kind: str, findings: int, leaks: int, mixed: int = 0) -> str:
    """Returns how many findings of a kind there are, and how many across splits."""
    counts = [
        f"{count:,} {where}"
        for count, where in (
            (leaks, "across splits"),
            (findings - leaks, "within one split"),
            (mixed, "with several classes"),
        )
        if count
    ]
    return f"{TITLES[kind]}: {', '.join(counts) or 'none'}"


def describe_written(written: Written) -> str:
    """Returns what a clean manifest holds, and what a person has to decide."""
    text = (
        f"{written.clips:,} clips in {written.groups:,} groups, "
        f"{written.dropped:,} doubles left out"
    )
    if written.mixed:
        text += (
            f"; {written.mixed:,} clips have the same samples as a clip of another "
            "class: correct their classes, or delete them"
        )
    return text


def _describe_finding(finding: Mapping[str, Any]) -> Iterator[str]:
    where = "across splits"
    if not finding["across"]:
        where = f"within {finding['clips'][0]['split']}"
    detail = f": {finding['detail']}" if finding["detail"] else ""
    yield f"{TITLES[finding['kind']]} {where}{detail}"
    counts: Counter[str] = Counter()
    for clip in finding["clips"]:
        split = clip["split"]
        counts[split] += 1
        if counts[split] <= CLIPS_SHOWN:
            seconds = f"{clip['start_s']:g} to {clip['end_s']:g} s"
            label = "" if clip["class"] is None else f"  {clip['class']}"
            yield f"  {split}  {clip['path']}  {seconds}{label}"
    for split, count in counts.items():
        if count > CLIPS_SHOWN:
            yield f"  {split}  ... and {count - CLIPS_SHOWN:,} more"
