"""What a job is, what decides its bytes, and how a run of it starts.

Recipe, inputs, versions and code decide the bytes. A run writes them, as the *stamp* of
its job, into the work folder. Only a run with an equal stamp continues it, because a
data set must not mix two recipes or two versions. What a run finds in its output
decides what it does there::

    data set                    unfinished run       what the run does
    --------------------------  -------------------  -------------------------------
    none                        none                 BEGIN
    none, but was               none                 REPAIR: `verify --repair` has
                                                     deleted damaged shards
    none                        of the same job      CONTINUE
    none                        of another job       an error; with `overwrite` BEGIN
    none                        left nothing         BEGIN
    that of this job            any                  DONE
    another one                 any                  an error; with `overwrite` REPLACE,
                                                     or CONTINUE what replaces it
    files of others             any                  an error

Elements only BEGIN or REPLACE. Only the run that holds the claim on the output starts,
see :mod:`beam_pipeline.storage.claim`.

DONE is a finished data set to which nothing remains to do. A data set holds neither the
location of its inputs nor the times of their changes. These must be equal:

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
import os
import sys
import time
import uuid
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from functools import cache, partial
from itertools import chain, islice
from typing import Any, NamedTuple

from beam_pipeline.audio.formats import LIBRARY, is_installed, library_versions
from beam_pipeline.dataset import folders
from beam_pipeline.dataset.metadata import DISTRIBUTION, Metadata, to_text
from beam_pipeline.dataset.side_by_side import as_recorded, read_skipped
from beam_pipeline.dataset.tables import first_lines, read_rejects
from beam_pipeline.encodings import CODECS
from beam_pipeline.errors import DataSetWarning, InputError, OutputError, StoreError
from beam_pipeline.inputs.columns import SourceRow
from beam_pipeline.inputs.event_files import events_file
from beam_pipeline.inputs.listing import Listing
from beam_pipeline.inputs.sources import Input, locate
from beam_pipeline.recipe.recipe import (
    GZIP,
    NO_COMPRESSION,
    Recipe,
    RunOptions,
    allowed_rejects,
)
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import (
    CLAIMS,
    UNCLAIMED,
    WORK_FOLDER,
    Claim,
    claimed,
    has_claims,
)
from beam_pipeline.text import bytes_sha256, parse_json, shown
from beam_pipeline.transforms.own_code import MAIN
from beam_pipeline.transforms.steps import TRANSFORM, given_steps, parse_steps

# Libraries whose version may change the bytes of a shard.
_BYTE_DECIDING = ("numpy", "scipy", "soundfile", "soxr", "isal")


@dataclass(frozen=True)
class Job:
    """What to record, how, and where.

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

    def shards_folder(self) -> str:
        """Where the files of the data set are written.

        A data set that is replaced is not disturbed, see
        :mod:`beam_pipeline.dataset.folders`.
        """
        if not (self.replaces and files.is_local(self.output)):
            return self.output
        return folders.new_folder(self.output)

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
        "writer": versions_for(recipe, ffmpeg=is_installed()),
        "code": code_of(recipe),
        "skip_recorded": {
            folder: bytes_sha256(files.read_bytes(files.join(folder, folders.METADATA)))
            for folder in job.skip_recorded
        },
    }
    if job.work_folder != files.join(job.output, WORK_FOLDER):
        # Two outputs may be given the same work folder.
        stamp["output"] = job.output
    as_json: dict[str, Any] = json.loads(json.dumps(stamp))
    return as_json


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Returns a text for each fact in which two stamps differ, by name.

    The stamps may be parts of one, such as the recipe. There are none if one of them
    has no recipe: it is of elements, or of a file that cannot be read.
    """
    if not all(isinstance(each.get("recipe"), Mapping) for each in (old, new)):
        return []
    return _changes(_facts(old), _facts(new))


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
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


def versions_for(recipe: Recipe, *, ffmpeg: bool) -> dict[str, str]:
    """Returns :func:`writer_versions` for the encodings and compression of a recipe."""
    encodings, compression = recipe.encodings.values(), recipe.compression
    return writer_versions(encodings, compression=compression, ffmpeg=ffmpeg)


def version_differences(recorded: Mapping[str, str], recipe: Recipe) -> list[str]:
    """Returns a text for each library that has another version than in a data set."""
    return _changes(recorded, versions_for(recipe, ffmpeg=LIBRARY in recorded))


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
        metadata = Metadata.load(job.output)
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
    if others := version_differences(metadata.writer, job.recipe):
        yield f"it was recorded with other versions: {'; '.join(others)}"
    if metadata.rejected > allowed_rejects(job.max_rejected, metadata.clips):
        yield (
            f"{metadata.rejected} of its {metadata.clips} clips were rejected, and "
            f"`max_rejected` is {job.max_rejected}"
        )
    sizes = {name: entry.bytes for name, entry in metadata.files.items()}
    sizes.update((entry.file, entry.bytes) for entry in metadata.shards())
    for name, size in sizes.items():
        if files.size(files.join(job.output, name)) != size:
            yield DAMAGED_FILE.format(name)


def _differences_of_inputs(
    job: Job, metadata: Metadata, make_again: MakeAgain
) -> Iterator[str]:
    """Yields how the listing, the times of files and some examples differ."""
    recorded_ns = files.modified_ns(files.join(job.output, folders.METADATA))
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


# In the stamp of a job: the SHA-256 of the metadata of the data set that it replaces.
_REPLACES = "replaces"
# In the stamp of elements, whose source cannot be asked again: False.
_CONTINUES = "continues"

# In the folder of drafts: the data set that was in the store is deleted.
_ROOM_MADE = "room-made"


class Case(Enum):
    """What a run does in its output."""

    DONE = "nothing: the data set of this job is there"
    BEGIN = "what is there, if anything, may go: it is deleted, and the job begins"
    CONTINUE = "an unfinished run of the same job is there: its shards stay"
    REPAIR = "a data set is there that lost damaged shards: the others stay"
    REPLACE = "a data set is there, which stays until the new one is whole"


class OutputState(NamedTuple):
    """What an output and a work folder hold.

    Attributes
    ----------
    held : list of str
        The files in the output that no run has in work.
    data_set : str or None
        The SHA-256 of ``metadata.json``, if the data set is complete.
    difference : str or None
        How that data set differs from the one that the job would record; None if it
        does not differ. Empty if nobody has compared them.
    stamp : dict or None
        The stamp of an unfinished run; empty if it cannot be read. None if there is no
        unfinished run.
    replaces : str or None
        Which data set that run replaces.
    is_useless : bool
        Whether that run left nothing that a later one could continue.
    is_damaged : bool
        Whether a data set waits for shards that were deleted, to be made again.
    is_switched : bool
        Whether the data set of that run has just taken its place.
    """

    held: list[str]
    data_set: str | None = None
    difference: str | None = ""
    stamp: dict[str, Any] | None = None
    replaces: str | None = None
    is_useless: bool = False
    is_damaged: bool = False
    is_switched: bool = False


class Asked(NamedTuple):
    """What a job wants of its output.

    Attributes
    ----------
    output, work : str
        The output, and the folder for unfinished files.
    stamp : mapping
        See :func:`.job_stamp`; for elements, who records them.
    overwrite : bool
        Whether a data set, or an unfinished run of another job, may be replaced.
    """

    output: str
    work: str
    stamp: Mapping[str, Any]
    overwrite: bool

    @property
    def continues(self) -> bool:
        """Whether the job goes on where another run of it ended."""
        return bool(self.stamp.get(_CONTINUES, True))


class ElementOutput(NamedTuple):
    """Where a data set is written, and folders in the work folder of its output.

    ``output`` is a folder of the claim, out of which the whole data set comes into its
    place; in a store it is that place. ``drafts`` has files that are not finished, and
    ``receipts`` those of blocks.
    """

    output: str
    work: str
    drafts: str
    receipts: str
    claim: Claim = UNCLAIMED


@contextmanager
def started(
    job: Job, run: RunOptions, compare: Callable[[Job], str | None]
) -> Iterator[Job | None]:
    """Claims the output of a job while the block runs, and yields the job to run there.

    Yields None if the output already holds the data set that the job would record.

    Parameters
    ----------
    job : Job
        With the inputs as the user gave them, rows in memory among them.
    run : RunOptions
        With a runner, workers of its engine may go on after this process.
    compare : callable
        Returns how the data set in the output differs from the one that a job would
        record; None if it does not differ. It is not asked if the job overwrites, or
        becomes a template: then, a data set there is another one.

    Raises
    ------
    OutputError
        If the output, or the work folder, cannot be used; nothing is changed then.
    """
    output, work = job.output, job.work_folder
    check_folders(output, work, job.inputs)
    placed = replace(job, inputs=tuple(_placed_rows(each, work) for each in job.inputs))
    asked = Asked(output, work, job_stamp(placed), run.overwrite)

    @cache
    def compared(data_set: str | None) -> str | None:
        if data_set is None or run.overwrite or run.is_template():
            return ""
        return compare(job)

    def look() -> OutputState:
        found = look_at(output, work)
        return found._replace(difference=compared(found.data_set))

    found = look()
    is_claimed = has_claims(output)
    # A run that was killed at its very end has left its claim, and files of it.
    is_left = is_claimed and files.is_local(output)
    if found.difference is None and found.stamp is None and not is_left:
        yield None
        return
    if not is_claimed:
        case_of(found, asked)  # may refuse, before anything is written
    goes_on = partial(folders.has_run, work) if run.has_runner() else bool
    with claimed(output, goes_on) as claim:
        is_switched = folders.finish_switch(output, claim)
        found = look()._replace(is_switched=is_switched)  # another run may have come
        case = case_of(found, asked)
        if case is Case.REPAIR:
            check_recorded_recipe(output, job.recipe)
        start(case, found, asked, claim)
        if case is Case.DONE:
            yield None
            return
        for given, entry in zip(job.inputs, placed.inputs, strict=True):
            if given is not entry:
                claim.write(entry.location, files.read_bytes(given.location))
        continues = case is Case.CONTINUE
        replaces = case is Case.REPLACE or (continues and found.replaces is not None)
        repairs = case is Case.REPAIR or (continues and found.is_damaged)
        yield replace(
            placed, claim=claim, replaces=replaces, repairs=repairs and not replaces
        )


@contextmanager
def element_output(
    output: str | os.PathLike[str], recorded_by: str, overwrite: bool
) -> Iterator[ElementOutput]:
    """Claims an output for elements while the block runs; empties its work folder then.

    The source of elements cannot be asked for some of them again, so nothing is
    continued: if the block fails, what it has written is deleted. With ``overwrite``, a
    data set in the folder stays until the new one is whole; in a store, until the block
    calls :func:`make_room`.

    Raises
    ------
    InputError, OutputError
        If the folder cannot be used, see :func:`case_of` and :func:`.claimed`; nothing
        in it is changed then.
    """
    folder = files.given_path("output", output)
    work = files.join(folder, WORK_FOLDER)
    is_local = files.is_local(folder)
    _check_can_be_folder(folder, "the output")
    with claimed(folder) as claim:
        folders.finish_switch(folder, claim)
        found = look_at(folder, work)
        stamp = {"recorded_by": recorded_by, _CONTINUES: False}
        asked = Asked(folder, work, stamp, overwrite)
        start(case_of(found, asked), found, asked, claim)
        # A run that wakes up late writes where the next one finds nothing.
        own = claim.folder if is_local else work
        written = os.path.join(own, "written") if is_local else folder
        drafts = files.join(own, folders.DRAFTS)
        receipts = files.join(own, folders.RECEIPTS)
        try:
            yield ElementOutput(written, work, drafts, receipts, claim)
            if is_local:
                folders.put_in_place(written, folder, claim)
        except BaseException as error:
            store_fails = not is_local and isinstance(error, StoreError)
            if claim.is_held() and not store_fails:
                if not is_local and _made_room(folder, work):
                    folders.delete_data_set(
                        folder, list(_held_files(folder, work)), claim
                    )
                folders.clear_work(work, claim)
            raise
        folders.clear_finished(work, claim)


def make_room(output: str, work: str, claim: Claim) -> None:
    """Deletes the data set in a store that a finished one replaces; only once."""
    done = files.join(work, folders.DRAFTS, _ROOM_MADE)
    if not files.is_local(output) and not files.exists(done):
        folders.delete_data_set(output, list(_held_files(output, work)), claim)
        claim.write(done, b"")


def _made_room(output: str, work: str) -> bool:
    """Whether what is in the output belongs to the run that failed."""
    kept = files.exists(files.join(output, folders.METADATA))
    return not kept or files.exists(files.join(work, folders.DRAFTS, _ROOM_MADE))


# The case of a run


def look_at(output: str, work: str) -> OutputState:
    """Returns what an output and a work folder hold."""
    held = list(islice(_held_files(output, work), 100_000))
    metadata = files.join(output, folders.METADATA)
    data_set = None
    if files.exists(metadata):
        data_set = bytes_sha256(files.read_bytes(metadata))
    is_damaged = files.exists(folders.recorded_metadata(output))
    if not folders.has_run(work):
        return OutputState(held, data_set, is_damaged=is_damaged)
    stamp = _read_stamp(files.join(work, folders.JOB_FILE))
    replaces = stamp.pop(_REPLACES, None)
    has_failed = files.exists(files.join(work, folders.ERROR_FILE))
    is_useless = has_failed and not files.is_folder(files.join(work, folders.RECEIPTS))
    is_useless = is_useless or not stamp.get(_CONTINUES, True)
    return OutputState(held, data_set, "", stamp, replaces, is_useless, is_damaged)


def _held_files(output: str, work: str) -> Iterator[str]:
    """The files in the output that belong to no claim and to no run in work."""
    if not files.exists(output) and not files.is_folder(output):
        return
    own = [
        f"{WORK_FOLDER}/{name}"
        for name in (folders.METADATA, CLAIMS, folders.NEW, folders.WHOLE)
    ]
    if files.join(output, WORK_FOLDER) == work:
        own = [WORK_FOLDER]
    for name in files.list_files(output):
        if not any(name == each or name.startswith(f"{each}/") for each in own):
            yield name


def _read_stamp(job_file: str) -> dict[str, Any]:
    """Returns the stamp of an unfinished run; an empty one if it cannot be read."""
    try:
        stamp = parse_json(files.read_bytes(job_file))
    except ValueError:  # the machine went down while the file was written
        return {}
    return stamp if isinstance(stamp, dict) else {}


def case_of(found: OutputState, asked: Asked) -> Case:
    """Returns the case of a run, from what it has found.

    Raises
    ------
    OutputError
        If the output holds what the run must not delete.
    """
    is_same, is_free = found.stamp == asked.stamp, found.data_set is None
    if found.difference is None or (found.is_switched and is_same):
        return Case.DONE
    replaces_it = asked.overwrite and found.replaces == found.data_set
    if is_same and asked.continues and (is_free or replaces_it):
        return Case.CONTINUE
    if is_free and not asked.overwrite:
        if found.stamp is None and found.is_damaged:
            return Case.REPAIR
        if found.stamp is not None and not found.is_useless:
            raise _other_run(found.stamp, asked)
    may_go = asked.overwrite or (is_free and found.is_useless)
    foreign = [name for name in found.held if not folders.is_ours(name)]
    if foreign or not (may_go or set(found.held) <= {folders.REJECTED}):
        raise _other_files(foreign, found, asked)
    # A store cannot rename, so there only elements are written elsewhere before.
    waits = files.is_local(asked.output) or not asked.continues
    return Case.REPLACE if waits and not is_free else Case.BEGIN


def _other_run(old: Mapping[str, Any], asked: Asked) -> OutputError:
    others = differences(old, asked.stamp) or ["it is of another kind"]
    return OutputError(
        f"{asked.work} holds an unfinished run of another job: {'; '.join(others)}. To "
        "finish it, give its command again. To replace it, give `overwrite`. To keep "
        "it, give another `output` or `work_dir`."
    )


def _other_files(
    foreign: Sequence[str], found: OutputState, asked: Asked
) -> OutputError:
    what = f"a data set, and {found.difference}" if found.difference else "a data set"
    if foreign:
        what = f"files that do not belong to a data set, for example {foreign[0]}"
    hint = "" if foreign else ", or give `overwrite` to replace it"
    folder = "`output`" if asked.continues else "folder"
    return OutputError(f"{asked.output} holds {what}. Give another {folder}{hint}.")


def start(case: Case, found: OutputState, asked: Asked, claim: Claim) -> None:
    """Prepares output and work folder for a run, and writes its stamp."""
    output, work, stamp = asked.output, asked.work, dict(asked.stamp)
    if case is Case.DONE:
        own = work == files.join(output, WORK_FOLDER)
        if own and (found.is_switched or found.replaces is None):
            folders.clear_work(work, claim)
        return
    if case in (Case.CONTINUE, Case.REPAIR):
        # This run makes its own plan, its own error, and shards that lost windows.
        lost = [n for n in folders.receipts(work) if n.endswith(folders.LOST)]
        paths = [files.join(folders.RECEIPTS, name) for name in lost]
        for path in (folders.PLAN_FILE, folders.ERROR_FILE, *paths):
            claim.discard(files.join(work, path))
        if case is Case.CONTINUE:
            return
    else:
        if case is Case.BEGIN:
            folders.delete_data_set(output, found.held, claim)
        if found.stamp is not None:
            folders.clear_work(work, claim)
        claim.discard(folders.new_folder(output), is_folder=True)
        claim.discard(folders.recorded_metadata(output))
    if case is Case.REPLACE:
        stamp[_REPLACES] = found.data_set
    claim.write(files.join(work, folders.JOB_FILE), to_text(stamp))


# What is checked before


def check_folders(output: str, work: str, inputs: Sequence[Input]) -> None:
    """Checks the output and the work folder that a user chose.

    Raises
    ------
    OutputError
        If the output cannot be a folder, or is inside an input; if the work folder and
        an input or the output contain each other; or if the work folder holds files of
        others.
    """
    _check_can_be_folder(output, "`output`")
    sources = [("`input`", entry.location) for entry in inputs]
    for _, source in sources:
        if files.is_inside(output, source):
            raise OutputError(
                f"`output` {output} is inside `input` {source}. Give an `output` "
                "outside the `input`."
            )
    if work == files.join(output, WORK_FOLDER):
        return
    for what, other in (("`output`", output), *sources):
        if files.is_inside(work, other) or files.is_inside(other, work):
            raise OutputError(
                f"`work_dir` {work} and {what} {other} must be separate, but one is "
                "inside the other or they are the same. A complete run empties its "
                "`work_dir`. Give another `work_dir`."
            )
    foreign = folders.foreign_file(work)
    if foreign is not None:
        raise OutputError(
            f"`work_dir` {work} holds files that do not belong to a run, for example "
            f"{foreign}. Give a new or empty folder."
        )


def _check_can_be_folder(output: str, what: str) -> None:
    if not files.is_local(output) or os.path.isdir(output):
        return
    if os.path.lexists(output):
        raise OutputError(
            f"{output} is a file, or a link that leads nowhere; {what} must be a "
            "folder."
        )


def check_recorded_recipe(output: str, recipe: Recipe) -> None:
    """Raises OutputError unless a recipe makes the shards that a data set has lost."""
    path = folders.recorded_metadata(output)
    metadata = Metadata.parse(files.read_bytes(path), path)
    if others := recipe_differences(recipe, metadata):
        raise OutputError(
            f"{output} holds a data set of which damaged shards were deleted, and it "
            f"has another recipe: {'; '.join(others)}. To make them again, give the "
            f"command that recorded it, or `recipe` {path}. To replace the data set, "
            "give `overwrite`."
        )


def _placed_rows(entry: Input, work: str) -> Input:
    """Returns the input as workers read it: rows in memory become a file."""
    if not entry.in_memory or entry.table is None:
        return entry
    location = files.join(work, folders.ROWS, entry.location.rpartition("/")[2])
    return replace(
        entry, location=location, table=replace(entry.table, location=location)
    )


def nothing_new(job: Job) -> Metadata | None:
    """Ends a run that had nothing to record beside other data sets: no folder is left.

    Warns if clips were rejected.

    Returns
    -------
    Metadata or None
        Without splits. None if the run had something to record.
    """
    work, output = job.work_folder, job.output
    if not files.exists(files.join(work, folders.NOTHING_NEW)):
        return None
    rejects = read_rejects(work, folders.NOTHING_NEW)
    if rejects:
        found = ((each.path, each.reason) for each in rejects)
        lines = first_lines(found, len(rejects))
        text = f"Nothing was recorded. These clips were rejected:\n{lines}"
        warnings.warn(text, DataSetWarning, stacklevel=4)  # of `record`
    folders.clear_work(work, job.claim)
    if not files.exists(files.join(output, folders.METADATA)):
        job.claim.discard(files.join(output, folders.REJECTED))
    number = len({each.path for each in rejects})
    return Metadata(job.recipe, {}, (), {}, clips=number, rejected=number)
