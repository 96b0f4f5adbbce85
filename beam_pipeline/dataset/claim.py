"""The claim of a run on its output, which keeps others out and what was there safe.

A run leaves in its work folder which job it is of. Another one goes on with it if it
is of the same job, and is refused if it is not.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

from beam_pipeline.dataset.manifest import manifest_fields, write_manifest
from beam_pipeline.dataset.metadata import (
    Metadata,
    ShardEntry,
    equal_manifests,
    to_text,
    writer_versions,
)
from beam_pipeline.dataset.output_folder import MANIFEST, METADATA, REJECTED, is_ours
from beam_pipeline.dataset.rejects import rejects_text
from beam_pipeline.dataset.work_folder import (
    JOB_FILE,
    PHASES,
    PLAN_FILE,
    RECEIPTS,
    ROWS,
    VERDICT_FILE,
    WORK_FOLDER,
    clear_work,
    foreign_file,
)
from beam_pipeline.errors import (
    EngineError,
    InputError,
    OutputError,
    RecipeError,
    StoreError,
)
from beam_pipeline.inputs.event_files import events_file
from beam_pipeline.inputs.sources import Input, locate
from beam_pipeline.plan.clips import Clip, Reject
from beam_pipeline.plan.segments import ShardWork
from beam_pipeline.plan.shards import Shard
from beam_pipeline.plan.summary import PlanSummary
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.values import allowed_rejects
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import SUFFIX, read_records
from beam_pipeline.transforms.expressions import STEP_FIELDS, TRANSFORM, parse_steps

if TYPE_CHECKING:
    from beam_pipeline.pipeline.job import Job

# What is made once more to see whether inputs give what a data set holds.
SHARDS_AGAIN = 8
EXAMPLES_AGAIN = 8


@contextmanager
def locked(work: str) -> Iterator[None]:
    """Keeps a second run on this machine out of a work folder while the block runs.

    Raises
    ------
    OutputError
        If there is one already.
    """
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    name = hashlib.blake2b(work.encode(errors="surrogateescape"), digest_size=8)
    path = os.path.join(
        tempfile.gettempdir(),
        f"audio-tfrecords-{os.getuid()}-{name.hexdigest()}.lock",
    )
    while True:
        file = open(path, "w")  # noqa: SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise OutputError(
                f"Another run on this machine is writing into {work}. Wait for it, or "
                "give another --output."
            ) from error
        # Whoever held it before may have deleted it after it was opened here: such a
        # lock keeps nobody out.
        if _is_open_at(path, file):
            break
        file.close()
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            os.remove(path)  # while it is still held
        file.close()


def _is_open_at(path: str, file: IO[str]) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def check_work_folder(work: str, output: str, inputs: Sequence[Input]) -> None:
    """Makes sure that a work folder of the user's choice is one of its own.

    Raises
    ------
    OutputError
        If it lies in an input or in the output, holds one, or holds other files.
    """
    for what, other in [
        ("--output", output),
        *(("--input", entry.location) for entry in inputs),
    ]:
        a, b = f"{work.rstrip('/')}/", f"{other.rstrip('/')}/"
        if a.startswith(b) or b.startswith(a):
            raise OutputError(
                f"--work-dir {work} and {what} {other} lie one in the other. Give a "
                "folder of its own: it is emptied when the data set is complete."
            )
    foreign = foreign_file(work)
    if foreign is not None:
        raise OutputError(
            f"--work-dir {work} holds files that are not of a run, such as {foreign}. "
            "Give a new or empty folder."
        )


def claim_output(
    output: str,
    work: str,
    recipe: Recipe,
    inputs: Sequence[Input],
    overwrite: bool,
    difference: str | None = None,
) -> None:
    """Makes sure that nothing which was there before is lost, and claims the folder.

    ``difference`` tells what about the data set that is there is another than wanted.

    Raises
    ------
    OutputError
        If the folder holds anything but an unfinished run of this very job; with
        ``overwrite``, if it holds anything but a data set of ours.
    """
    stamp: dict[str, Any] = {
        "recipe": recipe.to_json(),
        "inputs": [asdict(entry) for entry in inputs],
        "writer": writer_versions(),
        "code": code_of(recipe),
    }
    if work != files.join(output, WORK_FOLDER):
        # Or a run could take another folder for the one that was claimed.
        stamp["output"] = output
    if files.is_local(output) and os.path.isfile(output):
        raise OutputError(f"{output} is a file; --output must be a folder.")
    if files.is_local(output):
        for entry in inputs:
            if (output + os.sep).startswith(entry.location.rstrip(os.sep) + os.sep):
                raise OutputError(
                    f"--output {output} lies inside --input {entry.location}. Give a "
                    "folder outside it."
                )
    job_file = files.join(work, JOB_FILE)
    held = list(islice(_held_files(output, work), 100_000))
    claimed = files.exists(job_file)
    if claimed and METADATA not in held:
        found = _read_stamp(job_file)
        if found == json.loads(json.dumps(stamp)):
            # What the run before has planned and how it failed is history.
            files.delete(files.join(work, name) for name in (PLAN_FILE, VERDICT_FILE))
            return
        # A run that failed without one whole shard leaves nothing to go on with.
        failed = files.exists(files.join(work, VERDICT_FILE))
        overwrite |= failed and not files.is_folder(files.join(work, RECEIPTS))
        if not overwrite:
            there = found.get("output", output) if isinstance(found, dict) else output
            if there != output:
                raise OutputError(
                    f"--work-dir {work} holds an unfinished run into {there}. Give "
                    "another --work-dir, or --overwrite to give that run up."
                )
            raise OutputError(
                f"{output} holds an unfinished run of another recipe, other inputs, "
                "other library versions or other code of a transform. Give its command "
                "again to finish it, or --overwrite to replace it, or another --output."
            )
    if held and set(held) != {REJECTED}:
        foreign = [name for name in held if not is_ours(name)]
        if foreign or not overwrite:
            what = f"a data set, and {difference}" if difference else "a data set"
            if foreign:
                what = f"files that are not of a data set, such as {foreign[0]}"
            hint = "" if foreign else ", or --overwrite to replace it"
            raise OutputError(f"{output} holds {what}. Give another --output{hint}.")
    # The metadata first: from then on the data set is not complete.
    for name in sorted(held, key=lambda name: name != METADATA):
        files.delete([files.join(output, name)])
    if claimed:
        clear_work(work)
    files.write_bytes(job_file, to_text(stamp))


def _read_stamp(job_file: str) -> Any:
    try:
        return json.loads(files.read_bytes(job_file))
    except ValueError:  # cut off with the machine: nobody knows whose run it was
        return None


def _held_files(output: str, work: str) -> Iterator[str]:
    if not files.exists(output) and not files.is_folder(output):
        return
    own = files.join(output, WORK_FOLDER) == work
    for name in files.list_files(output):
        if not (own and name.startswith(WORK_FOLDER + "/")):
            yield name


@contextmanager
def nothing_left(output: str, work: str) -> Iterator[None]:
    """Takes the claim back if the block fails before the job has so much as a plan.

    Only where the error tells that no job goes on elsewhere.
    """
    made = []  # innermost first
    for folder in (work, output):
        while files.is_local(folder) and not os.path.isdir(folder):
            made.append(folder)
            folder = os.path.dirname(folder)
    try:
        yield
    except (EngineError, InputError, RecipeError, StoreError) as error:
        asked_in_vain = isinstance(error, StoreError) and not files.is_local(work)
        if not asked_in_vain and _is_unused(work):
            clear_work(work)
            for folder in made:
                with suppress(OSError):  # it holds something, or is gone
                    os.rmdir(folder)
        raise


def _is_unused(work: str) -> bool:
    """Whether a claimed work folder holds nothing that a run could go on with."""
    if not files.exists(files.join(work, JOB_FILE)):
        return False
    first = {name.partition("/")[0] for name in files.list_files(work)}
    return first <= {JOB_FILE, VERDICT_FILE, PHASES, ROWS}


def code_of(recipe: Recipe) -> dict[str, str]:
    """SHA-256 of each module that transforms of the user's own come from.

    A run that continues must not mix what they did before and what they do now.
    """
    code = {}
    for name, source in sources_of_code(recipe).items():
        with open(source, "rb") as file:
            code[name] = hashlib.sha256(file.read()).hexdigest()
    return code


def sources_of_code(recipe: Recipe) -> dict[str, str]:
    """The file of each module that transforms of the user's own come from."""
    sources = {}
    expressions = [(text, TRANSFORM) for text in recipe.features.values()]
    expressions += [(getattr(recipe, name), k) for name, k in STEP_FIELDS.items()]
    for expression, kind in expressions:
        for step in parse_steps(expression, kind) if expression else ():
            name = getattr(step, "__module__", None) or type(step).__module__
            source = getattr(sys.modules.get(name), "__file__", None)
            if source is not None and name.partition(".")[0] != "beam_pipeline":
                sources[name] = source
    return sources


def difference_to_finished(job: Job) -> str | None:
    """What of a finished data set is another than a job would make; None if nothing.

    A data set tells neither where its inputs were nor when they were changed. So this
    makes the plan once more, from headers, which writes nothing to the output. Equal
    must be

    - the recipe, the versions of the libraries, and the number of rejects allowed;
    - the plan: each clip's name, part, class, split, group, columns, length, rate,
      channels and format, in order; the rejects by header with their reasons; the
      number of ignored files; and the names of the shards;
    - the sizes of the shards in the folder;
    - the first examples of some shards, which are made once more from the inputs.

    And each file that a shard was made of must have been changed, renamed or put in
    its place before the shard was written, by the times of the file systems: of audio,
    of events, and of the modules with transforms of the user's own. A time that nobody
    knows counts as later.

    So a difference can stay unseen in these cases alone: a whole folder, or a folder
    above it, was put in another's place by renaming it, or --input names another one,
    and its files have the same names and headers, are older than the data set, and
    give the same first examples; a store or a copy of the data set tells other times;
    a file was changed after it was read, while its shard was still being written; a
    module that a transform's own module imports was changed. In turn, what is the same
    may be taken for a change: where files were copied or their rights changed since,
    and on a processor that computes other last bits.
    """
    try:
        metadata = Metadata.load(job.output)
    except InputError as error:
        return str(error).rstrip(".")
    return _difference_of_run(job, metadata) or _difference_of_plan(job, metadata)


def _difference_of_run(job: Job, metadata: Metadata) -> str | None:
    """What differs before the inputs are looked at."""
    wanted = job.recipe
    if wanted.split_salt is None:  # it may have been chosen; the plan tells
        wanted = replace(wanted, split_salt=metadata.recipe.split_salt)
    old, new = metadata.recipe.to_json(), wanted.to_json()
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            return f"its {name} is {old.get(name)!r}, not {new.get(name)!r}"
    writer = writer_versions()
    for name in sorted({*writer, *metadata.writer}):
        before, now = metadata.writer.get(name), writer.get(name)
        if before != now:
            return f"it was recorded with {name} {before}; here is {now}"
    if metadata.rejected > allowed_rejects(job.max_rejected, metadata.clips):
        return (
            f"{metadata.rejected} of its {metadata.clips} clips were rejected, and "
            f"--max-rejected is {job.max_rejected}"
        )
    for entry in _shards_of(metadata):
        if files.size(files.join(job.output, entry.file)) != entry.bytes:
            return f"its shard {entry.file} is missing or damaged"
    return None


def _difference_of_plan(job: Job, metadata: Metadata) -> str | None:
    """What differs between the plan as it is now and what was recorded."""
    from beam_pipeline.run.local import plan_phase, write_again
    from beam_pipeline.run.phases import kept

    with tempfile.TemporaryDirectory(prefix="audio-tfrecords-again-") as work:
        # Fingerprints decode every clip, and matter here only where that failed.
        prints = job.recipe.fingerprint and metadata.rejected > 0
        again = replace(
            job,
            output=files.join(work, "records", ""),
            work_folder=work,
            recipe=replace(job.recipe, fingerprint=prints),
        )
        folder = files.join(work, PHASES)
        plan_phase(again, folder)
        summary: PlanSummary = next(kept(folder, "summary"))
        rejects: list[Reject] = list(kept(folder, "rejects"))
        if (
            _differs_in_counts(summary, metadata)
            or _differs_in_rejects(rejects, job.output)
            or _differs_in_clips(kept(folder, "manifest"), again, job.output)
        ):
            return "it is not of these inputs as they are now"
        late = _changed_since(kept(folder, "work"), job)
        if late is not None:
            return f"{late} may have been changed since it was recorded"
        some = list(islice(kept(folder, "work"), SHARDS_AGAIN))
        write_again(some, again, EXAMPLES_AGAIN)
        for shard in (each.task.shard for each in some):
            if _differs_in_examples(shard, metadata, again.output, job.output):
                return f"these inputs do not give the examples of shard {shard.name}"
    return None


def _shards_of(metadata: Metadata) -> list[ShardEntry]:
    return [shard for split in metadata.splits.values() for shard in split.shards]


def _differs_in_counts(summary: PlanSummary, metadata: Metadata) -> bool:
    layouts = summary.layouts
    planned = {
        split: [layout.shard(k).name + SUFFIX for k in range(layout.shards)]
        for split, layout in layouts.items()
    }
    recorded = {
        split: [shard.file for shard in entry.shards]
        for split, entry in metadata.splits.items()
    }
    counts = summary.listing.clips, summary.listing.ignored, summary.salt
    return planned != recorded or counts != (
        metadata.clips,
        metadata.ignored,
        metadata.recipe.split_salt,
    )


def _differs_in_rejects(rejects: Sequence[Reject], output: str) -> bool:
    """Whether a clip is rejected that was not; late ones are among the clips, too."""
    try:
        content = files.read_bytes(files.join(output, REJECTED))
    except FileNotFoundError:
        return True
    lines = Counter(rejects_text(rejects).splitlines())
    return not lines <= Counter(content.splitlines())


def _differs_in_clips(
    parts: Iterable[tuple[str, int, bytes]], again: Job, output: str
) -> bool:
    path = files.join(again.work_folder, MANIFEST)
    fields = manifest_fields(again.recipe, again.inputs[0].columns)
    write_manifest(path, parts, fields)
    there = files.join(output, MANIFEST)
    return not files.exists(there) or not equal_manifests(path, there)


def _changed_since(shards: Iterable[ShardWork], job: Job) -> str | None:
    """A file that may be another one than a shard was made of."""
    changed = functools.lru_cache(1 << 20)(_changed_ns)
    code = dict.fromkeys(sources_of_code(job.recipe).values(), 0)
    for work in shards:
        file = files.join(job.output, work.task.shard.name + SUFFIX)
        written = files.modified_ns_of(file)
        used = dict(code)
        for segment in work.task.segments:
            used.update(_files_of_clip(segment.clip, job.inputs, job.recipe))
        for path, known in used.items():
            if not 0 < changed(path, known) < written:
                return path
    return None


def _changed_ns(path: str, known: int) -> int:
    """When a file was changed; 0 where nobody knows. A store has told it already."""
    if known and not files.is_local(path):
        return known
    try:
        return files.changed_ns(path)
    except FileNotFoundError:
        return 0


def _files_of_clip(
    clip: Clip, inputs: Sequence[Input], recipe: Recipe
) -> dict[str, int]:
    """What a clip's examples are made of, with the times that the plan knows."""
    used = {locate(inputs, clip.source, clip.filepath): clip.modified_ns}
    if recipe.events is not None:
        root = inputs[clip.source].root
        used[events_file(clip.filepath, root, recipe)] = 0
    return used


def _differs_in_examples(
    shard: Shard, metadata: Metadata, made: str, recorded: str
) -> bool:
    """Whether the first examples of a shard, made again, are not those recorded."""
    file = shard.name + SUFFIX
    (entry,) = (entry for entry in _shards_of(metadata) if entry.file == file)
    old = _first_records(files.join(recorded, file))
    new = _first_records(files.join(made, file))
    # Of a shard that has lost or left out windows, fewer come of as many places.
    is_whole = entry.examples == shard.examples
    return old[: len(new)] != new or (is_whole and len(new) < len(old))


def _first_records(path: str) -> list[bytes]:
    if not files.exists(path):
        return []
    try:
        with files.open_read(path) as file:
            return list(islice(read_records(file), EXAMPLES_AGAIN))
    except ValueError:  # damaged
        return []
