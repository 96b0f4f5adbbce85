"""The findings of ``audit`` as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from beam_pipeline.read.clean_manifest import Written
from beam_pipeline.read.findings import (
    AUDIO,
    FILE,
    GROUP,
    PARTS,
    SIMILAR,
    Audit,
    Finding,
    Findings,
)

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
    return "\n".join([*lines, *map(describe_findings, audit.kinds.values())])


def describe_audit(audit: Audit) -> str:
    """Returns the summary, then some findings of each kind with some of their clips."""
    lines = [summarise_audit(audit)]
    for findings in audit.kinds.values():
        for finding in islice(findings, FINDINGS_SHOWN):
            lines += ["", *_describe_finding(finding)]
        if len(findings) > FINDINGS_SHOWN:
            more = len(findings) - FINDINGS_SHOWN
            title = TITLES[findings.kind]
            lines += ["", f"... and {more:,} more of {title}; --json prints all"]
    return "\n".join(lines)


def describe_findings(findings: Findings) -> str:
    """Returns the numbers of findings of one kind, on one line."""
    title = TITLES[findings.kind]
    if findings.missing:
        return f"{title}: {_NOT_RECORDED[findings.missing]}"
    counts = [
        f"{count:,} {where}"
        for count, where in (
            (findings.leaks, "across splits"),
            (len(findings) - findings.leaks, "within one split"),
            (int(findings.mixed.sum()), "with several classes"),
        )
        if count
    ]
    more = "" if findings.complete else "; too many clips are alike to compare all"
    return f"{title}: {', '.join(counts) or 'none'}{more}"


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


def _describe_finding(finding: Finding) -> Iterator[str]:
    where = "across splits" if finding.across else f"within {finding.clips[0].split}"
    detail = f": {finding.detail}" if finding.detail else ""
    yield f"{TITLES[finding.kind]} {where}{detail}"
    counts: Counter[str] = Counter()
    for clip in finding.clips:
        counts[clip.split] += 1
        if counts[clip.split] <= CLIPS_SHOWN:
            start, end = clip.interval
            label = "" if clip.label is None else f"  {clip.label}"
            yield f"  {clip.split}  {clip.filepath}  {start:g} to {end:g} s{label}"
    for split, count in counts.items():
        if count > CLIPS_SHOWN:
            yield f"  {split}  ... and {count - CLIPS_SHOWN:,} more"
