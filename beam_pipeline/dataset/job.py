"""What a job is, what it leaves out, and what decides its bytes.

Recipe, inputs, versions and code decide the bytes. A run writes them, as the *stamp* of
its job, into the work folder. Only a run with an equal stamp continues it, because a
data set must not mix two recipes or two versions.

If the output holds a finished data set, there may be nothing to do. A data set holds
neither the location of its inputs nor the times of their changes. These must be equal:

- the recipe and the versions of the libraries;
- the listing of the inputs: names, classes, parts, groups, columns, and the splits that
  the inputs name;
- the names and the sizes of the files in the folder;
- some examples, which are made again from the inputs: first those of files that were
  moved, copied or given other permissions since the data set was recorded.

There must be no more rejects than the job allows. And no input, file of events or
module of a user-defined transform may have been written since. A time in the future
says nothing.

So a difference stays unnoticed if other audio has a name, a time and a class of before,
and is not among these examples. ``verify --deep --input`` compares more of them.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import chain
from typing import Any

from beam_pipeline.audio.formats import LIBRARY, is_installed, library_versions
from beam_pipeline.codecs import CODECS
from beam_pipeline.dataset import folders
from beam_pipeline.dataset.metadata import DISTRIBUTION, Metadata
from beam_pipeline.dataset.replace import new_folder
from beam_pipeline.dataset.side_by_side import as_recorded, read_skipped
from beam_pipeline.errors import InputError
from beam_pipeline.hashing import bytes_sha256
from beam_pipeline.inputs.columns import SourceRow
from beam_pipeline.inputs.event_files import events_file
from beam_pipeline.inputs.listing import Listing
from beam_pipeline.inputs.sources import Input, locate
from beam_pipeline.recipe.recipe import GZIP, NO_COMPRESSION, Recipe
from beam_pipeline.recipe.run_options import allowed_rejects
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import UNCLAIMED, WORK_FOLDER, Claim
from beam_pipeline.text import shown
from beam_pipeline.transforms.own_code import MAIN
from beam_pipeline.transforms.steps import TRANSFORM, given_steps, parse_steps

# Libraries whose version may change the bytes of a shard.
_BYTE_DECIDING = ("numpy", "scipy", "soundfile", "soxr", "isal")


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
        :mod:`beam_pipeline.dataset.folders`.
        """
        if not (self.replaces and files.is_local(self.output)):
            return self.output
        return files.join(new_folder(self.output), "")

    def plan_folder(self) -> str:
        """Where all workers of an engine find the plan and its pages."""
        return files.join(self.work_folder, folders.PLANS, self.run)

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
            folder: bytes_sha256(files.read_bytes(files.join(folder, folders.METADATA)))
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

    The stamps may be parts of one, such as the recipe. There are none if one of them
    has no recipe: it is of elements, or of a file that cannot be read.
    """
    if not all(isinstance(each.get("recipe"), Mapping) for each in (old, new)):
        return []
    before, now = _facts(old), _facts(new)
    return [
        f"{name} was {_value(before.get(name))}, here it is {_value(now.get(name))}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]


def recipe_differences(recipe: Recipe, metadata: Metadata) -> list[str]:
    """Returns how a recipe differs from the one that a data set was recorded with."""
    assert metadata.recipe is not None
    asked = as_recorded(recipe, metadata)
    return differences(
        {"recipe": metadata.recipe.to_json()}, {"recipe": asked.to_json()}
    )


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
    facts["`output`"] = stamp.get("output")
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
        Encodings of features. A library that only some need, as Pillow, is named only
        if one of these does.
    compression : str
        That of the recipe; zlib is among the libraries if it is a level.
    ffmpeg : bool
        Whether PyAV and ffmpeg are among them, because they decode a clip.
    """
    of_codecs = {CODECS[encoding].library for encoding in encodings} - {""}
    versions = {"name": DISTRIBUTION}
    for name in (DISTRIBUTION, *_BYTE_DECIDING, *sorted(of_codecs)):
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


# How a data set differs; the text continues "... holds a data set, and".
OTHER_RECIPE = "it has another recipe"
OTHER_INPUTS = "the names, classes or columns of its inputs were others"
NEWER_FILE = "{} was written after it was recorded"
DAMAGED_FILE = "its file {} is missing or damaged"
OTHER_EXAMPLES = "these inputs do not give its examples"

# Makes a few examples again, of some clips; yields a line for each that differs.
MakeAgain = Callable[[Metadata, set[int]], Iterator[str]]


def difference_to_recorded(job: Job, make_again: MakeAgain) -> str | None:
    """Returns how the data set in a job's output differs from what it would record.

    None if they do not differ. Nothing is written. The text continues the sentence "the
    folder holds a data set, and ...".
    """
    try:
        metadata = Metadata.load(job.output_folder)
        if metadata.recipe is None:
            return "it was not recorded from audio files"
        found = chain(
            _differences_beside_inputs(job, metadata),
            _differences_of_inputs(job, metadata, make_again),
        )
        return next(found, None)
    except InputError as error:
        return str(error).rstrip(".")


def _differences_beside_inputs(job: Job, metadata: Metadata) -> Iterator[str]:
    """Yields how the recipe, libraries, rejects and files differ."""
    if others := recipe_differences(job.recipe, metadata):
        yield f"{OTHER_RECIPE}: {'; '.join(others)}"
    for name, before, now in version_differences(metadata.writer, job.recipe):
        yield f"it was recorded with {name} {before}, but {now} is in use here"
    if metadata.rejected > allowed_rejects(job.max_rejected, metadata.clips):
        yield (
            f"{metadata.rejected} of its {metadata.clips} clips were rejected, and "
            f"`max_rejected` is {job.max_rejected}"
        )
    sizes = {name: entry.bytes for name, entry in metadata.files.items()}
    sizes.update((entry.file, entry.bytes) for entry in metadata.shards())
    for name, size in sizes.items():
        if files.size(files.join(job.output_folder, name)) != size:
            yield DAMAGED_FILE.format(name)


def _differences_of_inputs(
    job: Job, metadata: Metadata, make_again: MakeAgain
) -> Iterator[str]:
    """Yields how the listing, the times of files and some examples differ."""
    recorded_ns = files.modified_ns(files.join(job.output_folder, folders.METADATA))
    listing = job.listing()
    newer = [
        path
        for path in sources_of_code(job.recipe).values()
        if _change_since(path, recorded_ns) == _WRITTEN
    ]
    moved: set[int] = set()
    for row in chain.from_iterable(listing.blocks()):
        for path in _files_of(row, job):
            change = _change_since(path, recorded_ns)
            if change == _WRITTEN:
                newer.append(path)
            elif change == _MOVED:
                moved.add(row.row)
    if metadata.listing_sha256 != listing.summary().sha256:
        yield OTHER_INPUTS
    for path in newer:
        yield NEWER_FILE.format(path)
    for problem in make_again(metadata, moved):
        yield f"{OTHER_EXAMPLES} ({problem})"


def _files_of(row: SourceRow, job: Job) -> Iterator[str]:
    """Yields the files that a clip is made from, if it is to be recorded."""
    if row.recorded is None and row.source < len(job.inputs):
        yield locate(job.inputs, row.source, row.filepath)
        if job.recipe.events is not None:
            yield events_file(row.filepath, job.inputs[row.source].root, job.recipe)


_WRITTEN, _MOVED = "written", "moved"


def _change_since(path: str, recorded_ns: int) -> str:
    """Returns what happened to a file after the data set was recorded.

    "written", unless its time is in the future; "moved" if it is gone or newly there.
    """
    try:
        if recorded_ns < files.modified_ns(path) <= time.time_ns():
            return _WRITTEN
        return _MOVED if files.changed_ns(path) > recorded_ns else ""
    except FileNotFoundError:
        return _MOVED
