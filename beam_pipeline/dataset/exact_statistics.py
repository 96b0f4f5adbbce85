"""``statistics.json``: the sums and histograms of each split, which others can join.

The metadata hold what follows from them: means, deviations, quantiles.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import METADATA, STATISTICS
from beam_pipeline.errors import InputError
from beam_pipeline.storage import files
from beam_pipeline.storage.json_text import parse_json
from beam_pipeline.write.statistics import DataStatistics


def statistics_text(statistics: Mapping[str, DataStatistics]) -> bytes:
    """Returns the content of the file: the exact statistics of each split."""
    states = {split: each.state() for split, each in sorted(statistics.items())}
    return (json.dumps({"splits": states}) + "\n").encode()


def read_statistics(root: str, metadata: Metadata) -> dict[str, DataStatistics]:
    """Returns the exact statistics of each split of a data set.

    Raises
    ------
    FileNotFoundError
        If another recorder has written the data set.
    InputError
        If the file is damaged.
    """
    path = files.join(root, STATISTICS)
    content = files.read_bytes(path)
    try:
        states = parse_json(content)["splits"]
        exact = {n: DataStatistics.from_state(state) for n, state in states.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged: {error!r:.200}.") from error
    lacking = [n for n, e in metadata.splits.items() if e.statistics and n not in exact]
    if lacking:
        raise InputError(f"{path} is damaged: split {lacking[0]} is missing.")
    return exact


def statistics_problem(root: str, metadata: Metadata) -> str | None:
    """Returns what is wrong with the file of a recorded data set; None if nothing."""
    try:
        exact = read_statistics(root, metadata)
    except FileNotFoundError:
        return f"{STATISTICS}: is missing"
    except InputError as error:
        return str(error)
    for split in sorted({*exact, *metadata.splits}):
        try:
            described = exact[split].to_json() if split in exact else {}
        except ArithmeticError as error:  # sums that no values have
            return f"{STATISTICS}: split {split} is damaged: {error}"
        entry = metadata.splits.get(split)
        if entry is None or entry.statistics != described:
            return f"{STATISTICS}: split {split} has other statistics than {METADATA}"
    return None
