"""What a run leaves out, because data sets beside it hold it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.output_folder import MANIFEST, WINDOWS
from beam_pipeline.dataset.side_by_side import OF_SPLITS, recipe_of
from beam_pipeline.dataset.tables import clips_of, read_table, with_clips
from beam_pipeline.errors import DataSetWarning, RecipeError
from beam_pipeline.inputs.recorded_clips import (
    RecordedClips,
    plain_name,
    recorded_group,
    recorded_key,
)
from beam_pipeline.inputs.sources import Input
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files

_NUMBERS = (
    "native_frames", "native_sample_rate_hz", "channels", "sample_rate_hz", "start",
    "frames", "channel",
)  # fmt: skip
_OF_CLIPS = ("path", "input", "split", "group", "windows", "index", *_NUMBERS)

# Files that are looked for below the inputs of a run.
_LOOKED_FOR = 20


def check_skipped(
    folders: Sequence[str], recipe: Recipe, inputs: Sequence[Input]
) -> None:
    """Checks data sets whose clips a run leaves out, before the run begins.

    Warns if no file of a data set is among the inputs.

    Raises
    ------
    InputError
        If a folder holds no data set of audio files.
    RecipeError
        If a group could get another split than it has in a data set.
    """
    for folder in folders:
        before = recipe_of(folder)
        if before.hashed_shares() or recipe.hashed_shares():
            old, new = before.to_json(), recipe.to_json()
            for name in OF_SPLITS:
                if old[name] != new[name]:
                    raise RecipeError(
                        name,
                        f"must be that of {folder}, {old[name]!r}, so that no group is "
                        f"in two splits; give `recipe` {folder}",
                        new[name],
                    )
        _warn_of_other_roots(folder, inputs)


def _warn_of_other_roots(folder: str, inputs: Sequence[Input]) -> None:
    """Warns if none of some files of a data set is where the inputs would have it."""
    clips = read_table(folder, MANIFEST, ("path", "input"))
    rows = np.unique(np.linspace(0, len(clips) - 1, _LOOKED_FOR).astype(int))
    some = clips.take(rows[rows >= 0]).to_pylist()
    looked_for = [
        files.join(inputs[clip["input"]].root, clip["path"])
        for clip in some
        if clip["input"] < len(inputs)
    ]
    if some and not any(map(files.exists, looked_for)):
        warnings.warn(
            f"No file of {folder} is among the inputs, for example {some[0]['path']}. "
            "Is the root of the `input` the same as when it was recorded? Clips are "
            "known by their paths below it.",
            DataSetWarning,
            stacklevel=4,  # of `record`
        )


def read_skipped(folders: Sequence[str], recipe: Recipe) -> RecordedClips:
    """Reads the clips of data sets that a run need not record.

    A clip that was rejected is not among them, so it is tried again.
    """
    keys, numbers, names = [], [], list[str]()
    splits: dict[str, str] = {}
    has_groups = bool(recipe.group_by)
    given = recipe.hashed_shares() is None
    for folder in folders:
        clips = read_table(folder, MANIFEST, _OF_CLIPS)
        clips = clips.filter(~_rejected_rows(folder, clips))
        paths, sources = clips["path"].to_pylist(), clips["input"].to_pylist()
        plain = [plain_name(path) for path in paths]
        keys += [
            recorded_key(source, name)
            for source, name in zip(sources, plain, strict=True)
        ]
        numbers.append(
            np.stack(
                [clips[n].fill_null(-1).to_numpy().astype(np.int64) for n in _NUMBERS],
                axis=1,
            )
        )
        if given:
            groups = clips["group"].to_pylist() if has_groups else plain
            named = map(recorded_group, sources, groups, [has_groups] * len(groups))
            splits.update(zip(named, clips["split"].to_pylist(), strict=True))
        if recipe.events is not None:
            names += paths
    channel = recipe.channels
    return RecordedClips(
        np.array(keys, np.uint64),
        np.concatenate(numbers),
        channel if isinstance(channel, int) else -1,
        splits,
        has_groups,
        names,
    )


def _rejected_rows(folder: str, clips: Any) -> npt.NDArray[np.bool_]:
    """Returns which rows of a manifest lost windows, and have no example."""
    columns = with_clips(["left_out"], recipe_of(folder))
    windows = read_table(folder, WINDOWS, columns)
    clip = clips_of(windows, clips)
    reasons = (
        windows["left_out"].cast("string").fill_null("").to_numpy(zero_copy_only=False)
    )
    lost, held = (
        np.bincount(clip[chosen], minlength=len(clips)) > 0
        for chosen in (reasons == "rejected", reasons == "")
    )
    rejected: npt.NDArray[np.bool_] = lost & ~held
    return rejected
