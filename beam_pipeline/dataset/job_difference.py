"""How two jobs differ, for the error that refuses the second one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beam_pipeline.errors import shown

_NOT_GIVEN = "not given"


def option_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Returns a text for each option of a recipe whose JSON value differs, by name."""
    found = []
    for name in sorted({*old, *new}):
        before, now = _without_equal(old.get(name), new.get(name))
        if before != now:
            found.append(f"`{name}` was {_value(before)}, here it is {_value(now)}")
    return found


def _without_equal(before: Any, now: Any) -> tuple[Any, Any]:
    """Returns two values; of two mappings with equal keys, what differs in them."""
    if not (isinstance(before, Mapping) and isinstance(now, Mapping)):
        return before, now
    if before.keys() != now.keys():
        return before, now
    others = [key for key in before if before[key] != now[key]]
    return {key: before[key] for key in others}, {key: now[key] for key in others}


def _value(json: Any) -> str:
    return _NOT_GIVEN if json is None else shown(json, 200)


def job_differences(old: Any, new: Mapping[str, Any]) -> list[str]:
    """Returns a text for each difference of two jobs, see :func:`.claim.job_stamp`.

    ``old`` is what a work folder holds: anything, if the machine went down.
    """
    if not isinstance(old, Mapping) or not isinstance(old.get("recipe"), Mapping):
        return []
    found = option_differences(old["recipe"], new["recipe"])
    found += _input_differences(old.get("inputs"), new["inputs"])
    skipped = (
        {"skip_recorded": [*(job.get("skip_recorded") or ())]} for job in (old, new)
    )
    found += option_differences(*skipped)
    for name, what in (
        ("writer", "{}"),
        ("code", "the code of {}"),
        ("skip_recorded", "the data set in {}"),
    ):
        before, now = old.get(name) or {}, new.get(name) or {}
        keys = before.keys() & now if name == "skip_recorded" else {*before, *now}
        for key in sorted(keys):
            if before.get(key) == now.get(key):
                continue
            if name != "writer":
                found.append(f"{what.format(key)} has changed")
            else:
                found.append(f"{key} was {before.get(key)}, here it is {now.get(key)}")
    return found


def _input_differences(old: Any, new: Any) -> list[str]:
    if old == new:
        return []
    before, now = (
        [each["split"] + "=" * bool(each["split"]) + each["location"] for each in some]
        for some in (old, new)
    )
    if before != now:
        return [f"`input` was {', '.join(before)}, here it is {', '.join(now)}"]
    return ["the columns of the `input` have changed"]
