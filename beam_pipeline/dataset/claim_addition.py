"""The claim of an append or a retry, which leaves the data set in the output alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from beam_pipeline.dataset.claim import REPLACES, read_stamp
from beam_pipeline.dataset.generations import metadata_text
from beam_pipeline.dataset.job_difference import job_differences
from beam_pipeline.dataset.metadata import to_text
from beam_pipeline.dataset.work_folder import (
    JOB_FILE,
    PLAN_FILE,
    RECEIPTS,
    SWITCH,
    VERDICT_FILE,
    clear_work,
    is_claimed,
)
from beam_pipeline.errors import OutputError
from beam_pipeline.hashing import bytes_sha256
from beam_pipeline.storage import files
from beam_pipeline.storage.json_text import parse_json

ADDITION = "addition"


def claim_addition(output: str, work: str, stamp: Mapping[str, Any]) -> bool:
    """Claims the work folder for an addition; returns whether there is work to do.

    There is none if an earlier run of the same addition has made the switch to the new
    metadata, and then ended before it emptied its work folder.

    Parameters
    ----------
    stamp : mapping
        What must be equal for a run to continue another one. ``addition`` says which
        data set it adds to.

    Raises
    ------
    OutputError
        If the folder holds an unfinished run of another addition.
    """
    job_file = files.join(work, JOB_FILE)
    if is_claimed(work):
        found, asked = read_stamp(job_file), json.loads(json.dumps(stamp))
        if _made_switch(output, work):
            clear_work(work)
            if _without_data_set(found) == _without_data_set(asked):
                return False
        elif found == asked:
            # This run makes its own plan, and its own verdict.
            files.delete(files.join(work, name) for name in (PLAN_FILE, VERDICT_FILE))
            return True
        elif isinstance(found, dict) and REPLACES in found:
            raise OutputError(
                f"{work} holds an unfinished run that replaces the data set. To finish "
                "it, give its command again. To discard it, delete this folder; the "
                "data set stays as it is."
            )
        elif not _is_stale(found, asked, work):
            others = job_differences(found, asked)
            others += _other_options(found[ADDITION], asked[ADDITION])
            raise OutputError(
                f"{work} holds an unfinished run of another addition: "
                f"{'; '.join(others)}. To finish it, give its command again. To "
                "discard it, delete this folder; the data set stays as it is."
            )
        clear_work(work)
    files.write_bytes(job_file, to_text(stamp))
    return True


def leaves_data_set(work: str) -> bool:
    """Whether a work folder holds an unfinished addition, or replacement."""
    if not is_claimed(work):
        return False
    found = read_stamp(files.join(work, JOB_FILE))
    return isinstance(found, dict) and not found.keys().isdisjoint((ADDITION, REPLACES))


def _other_options(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """A text for each option of two additions, see :meth:`.Addition.stamp`."""
    return [
        f"`{name}` was {old.get(name)!r}, here it is {value!r}"
        for name, value in new.items()
        if old.get(name) != value
    ]


def _made_switch(output: str, work: str) -> bool:
    """Whether the metadata in the output are the last thing that a run wrote."""
    try:
        switch = parse_json(files.read_bytes(files.join(work, SWITCH)))
    except (FileNotFoundError, ValueError):
        return False
    return bool(switch["metadata"] == bytes_sha256(metadata_text(output)))


def _without_data_set(stamp: Any) -> Any:
    if not isinstance(stamp, dict) or ADDITION not in stamp:
        return stamp
    addition = {n: v for n, v in stamp[ADDITION].items() if n != "metadata"}
    return {**stamp, ADDITION: addition}


def _is_stale(found: Any, asked: Mapping[str, Any], work: str) -> bool:
    """Whether nothing in a work folder can be continued by any command."""
    if not isinstance(found, dict) or ADDITION not in found:
        return True  # the run that recorded the data set, or a stamp that was cut off
    if found[ADDITION]["metadata"] != asked[ADDITION]["metadata"]:
        return True  # the data set is another one by now
    # A run that failed before its first whole shard leaves nothing to continue.
    failed = files.exists(files.join(work, VERDICT_FILE))
    return failed and not files.is_folder(files.join(work, RECEIPTS))
