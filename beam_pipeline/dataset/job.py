"""What a job is, what it leaves out, and what decides its bytes.

Recipe, inputs, versions and code decide the bytes. A run writes them, as the *stamp* of
its job, into the work folder. Only a run with an equal stamp continues it, because a
data set must not mix two recipes or two versions.
"""

from __future__ import annotations

import json
import sys
import uuid
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.audio.formats import LIBRARY, is_installed, library_versions
from beam_pipeline.dataset.metadata import DISTRIBUTION
from beam_pipeline.dataset.output_folder import MANIFEST, METADATA, WINDOWS, new_folder
from beam_pipeline.dataset.side_by_side import OF_SPLITS, recipe_of
from beam_pipeline.dataset.tables import clips_of, read_table, with_clips
from beam_pipeline.dataset.work_folder import PLANS
from beam_pipeline.errors import DataSetWarning, RecipeError
from beam_pipeline.examples.spec import IMAGES
from beam_pipeline.hashing import bytes_sha256
from beam_pipeline.inputs.listing import Listing
from beam_pipeline.inputs.recorded_clips import (
    RecordedClips,
    plain_name,
    recorded_group,
    recorded_key,
)
from beam_pipeline.inputs.sources import Input
from beam_pipeline.recipe.recipe import GZIP, NO_COMPRESSION, Recipe
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import UNCLAIMED, WORK_FOLDER, Claim
from beam_pipeline.text import shown
from beam_pipeline.transforms.own_code import MAIN
from beam_pipeline.transforms.steps import TRANSFORM, given_steps, parse_steps

# Libraries whose version may change the bytes of a shard.
_BYTE_DECIDING = ("numpy", "scipy", "soundfile", "soxr", "isal")
_DECIDES_IMAGES = "pillow"

_NUMBERS = (
    "native_frames", "native_sample_rate_hz", "channels", "sample_rate_hz", "start",
    "frames", "channel",
)  # fmt: skip
_OF_CLIPS = ("path", "input", "split", "group", "windows", "index", *_NUMBERS)

# Files that are looked for below the inputs of a run.
_LOOKED_FOR = 20


@dataclass(frozen=True)
class Job:
    """What to record, how, and where; ``output`` ends in a separator.

    With ``replaces``, a data set in the output stays until the new one is ready. Clips
    that the data sets in the folders ``skip_recorded`` hold are left out. Without
    ``allow_unreadable``, the run fails if the machine fails at a clip. With
    ``repairs``, shards of a data set are made again, see
    :mod:`beam_pipeline.read.verify`. Files get their names while ``claim`` is held.
    A worker of an engine has ``limit_s`` for a step on one block of a clip; without it,
    nobody watches the worker. So many clips of the work folder were ``known_poison``
    when the job was sent. ``run`` is another name in each run: a plan is for one run,
    because inputs may have changed since the run before.
    """

    inputs: tuple[Input, ...]
    output: str
    work_folder: str
    recipe: Recipe
    max_rejected: str = "0"
    replaces: bool = False
    repairs: bool = False
    skip_recorded: tuple[str, ...] = ()
    allow_unreadable: bool = False
    claim: Claim = UNCLAIMED
    limit_s: float | None = None
    known_poison: int = 0
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def output_folder(self) -> str:
        """The output without the separator at its end."""
        return self.output.rstrip("/") or "/"

    def shards_folder(self) -> str:
        """Where the files of the data set are written; ends in a separator.

        A data set that is replaced is not disturbed, see
        :mod:`beam_pipeline.dataset.output_folder`.
        """
        if not (self.replaces and files.is_local(self.output)):
            return self.output
        return files.join(new_folder(self.output), "")

    def plan_folder(self) -> str:
        """Where all workers of an engine find the plan and its pages."""
        return files.join(self.work_folder, PLANS, self.run)

    def listing(self) -> Listing:
        """Returns the listing of the inputs."""
        recorded = None
        if self.skip_recorded:
            recorded = read_skipped(self.skip_recorded, self.recipe)
        return Listing(self.inputs, self.recipe, recorded)


def job_stamp(job: Job) -> dict[str, Any]:
    """Returns what must be equal for a run to continue another one, as JSON has it."""
    recipe = job.recipe
    stamp: dict[str, Any] = {
        "recipe": recipe.to_json(),
        "inputs": [asdict(entry) for entry in job.inputs],
        # Which clips need ffmpeg is not known yet.
        "writer": writer_versions(
            recipe.encodings.values(),
            compression=recipe.compression,
            ffmpeg=is_installed(),
        ),
        "code": code_of(recipe),
        "skip_recorded": {
            folder: bytes_sha256(files.read_bytes(files.join(folder, METADATA)))
            for folder in job.skip_recorded
        },
    }
    if job.work_folder != files.join(job.output_folder, WORK_FOLDER):
        # Two outputs may be given the same work folder.
        stamp["output"] = job.output_folder
    as_json: dict[str, Any] = json.loads(json.dumps(stamp))
    return as_json


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Returns a text for each fact in which two stamps differ, by name.

    The stamps may be parts of one, such as the recipe. ``old`` may be what a work
    folder holds after the machine went down: then there are none.
    """
    if not isinstance(old.get("recipe"), Mapping):
        return []
    before, now = _facts(old), _facts(new)
    return [
        f"{name} was {_value(before.get(name))}, here it is {_value(now.get(name))}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]


def _facts(stamp: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a stamp holds, one fact under each of the words of a message."""
    facts: dict[str, Any] = {}
    skipped = {"skip_recorded": stamp.get("skip_recorded") or {}}
    for option, value in (*stamp["recipe"].items(), *skipped.items()):
        if isinstance(value, dict):
            facts |= {f"`{option}` {part}": each for part, each in value.items()}
        else:
            facts[f"`{option}`"] = value
    inputs = stamp.get("inputs") or []
    facts["`input`"] = [
        each["split"] + "=" * bool(each["split"]) + each["location"] for each in inputs
    ]
    facts["`input` (columns)"] = [each.get("columns") for each in inputs]
    facts |= stamp.get("writer") or {}
    code = stamp.get("code") or {}
    return facts | {f"the code of {name}": sha256 for name, sha256 in code.items()}


def _value(json: Any) -> str:
    return "not given" if json is None else shown(json, 200)


def writer_versions(
    encodings: Iterable[str] = (), *, compression: str = GZIP, ffmpeg: bool = False
) -> dict[str, str]:
    """Returns the versions of this package and of libraries that decide bytes.

    Parameters
    ----------
    encodings : iterable of str
        Encodings of features. Pillow is among the libraries only if one is an image.
    compression : str
        That of the recipe; zlib is among the libraries if it is a level.
    ffmpeg : bool
        Whether PyAV and ffmpeg are among them, because they decode a clip.
    """
    images = (_DECIDES_IMAGES,) if {*IMAGES} & {*encodings} else ()
    versions = {"name": DISTRIBUTION}
    for name in (DISTRIBUTION, *_BYTE_DECIDING, *images):
        versions["version" if name == DISTRIBUTION else name] = _version(name)
    if compression not in (GZIP, NO_COMPRESSION):
        versions["zlib"] = zlib.ZLIB_RUNTIME_VERSION
    if ffmpeg:
        versions.update(library_versions())
    return versions


def version_differences(
    recorded: Mapping[str, str], recipe: Recipe
) -> Iterator[tuple[str, str | None, str | None]]:
    """Yields what a data set was recorded with that is another here, by name.

    Each comes with its version then and its version here; None: it did not take part.
    """
    here = writer_versions(
        recipe.encodings.values(),
        compression=recipe.compression,
        ffmpeg=LIBRARY in recorded,
    )
    for name in sorted({*recorded, *here}):
        before, now = recorded.get(name), here.get(name)
        if before != now:
            yield name, before, now


@cache
def _version(name: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def code_of(recipe: Recipe) -> dict[str, str]:
    """Returns the SHA-256 of each module that user-defined transforms come from.

    A run continues only if they are equal: a data set must not mix two versions.
    """
    sources = sources_of_code(recipe)
    return {name: files.hash_of(source)[1] for name, source in sources.items()}


def sources_of_code(recipe: Recipe) -> dict[str, str]:
    """Returns the file of each module that user-defined transforms come from.

    The recipe itself has the hash of what is defined in a script or a notebook.
    """
    sources, values = {}, recipe.to_json()
    expressions = [(text, TRANSFORM) for text in values["features"].values()]
    expressions += given_steps(values)
    for expression, kind in expressions:
        for step in parse_steps(expression, kind):
            name = getattr(step, "__module__", None) or type(step).__module__
            source = getattr(sys.modules.get(name), "__file__", None)
            if source is None or name.partition(".")[0] in (MAIN, "beam_pipeline"):
                continue
            sources[name] = source
    return sources


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
