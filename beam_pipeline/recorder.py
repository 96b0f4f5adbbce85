"""``record`` and ``plan``: from what people ask for to a job that runs."""

from __future__ import annotations

import logging
import os
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from beam_pipeline import files
from beam_pipeline.blocks import Format
from beam_pipeline.claims import (
    check_work_folder,
    claim_output,
    locked,
    nothing_left,
)
from beam_pipeline.engines import check_engine, explain_start
from beam_pipeline.errors import (
    AudioTFRecordsError,
    IncompleteRun,
    InputError,
    RecipeError,
    StoreError,
)
from beam_pipeline.events import named_no_event
from beam_pipeline.expressions import (
    STEP_FIELDS,
    format_steps,
    format_transform,
    parse_transform,
)
from beam_pipeline.features import naming_feature
from beam_pipeline.finish import PlanSummary, allowed_rejects
from beam_pipeline.manifests import is_rows, write_rows
from beam_pipeline.metadata import (
    METADATA,
    Metadata,
)
from beam_pipeline.plan import Clip, Corpus, Reject
from beam_pipeline.progress import (
    ROWS,
    WORK_FOLDER,
    Totals,
    read_progress,
    read_verdict,
)
from beam_pipeline.recipe import LABEL_SOURCES, Recipe, comma_text
from beam_pipeline.sources import (
    TABLE,
    Input,
    labelled_rows,
    list_sources,
    resolve_inputs,
    survey,
)
from beam_pipeline.splits import shares_of
from beam_pipeline.treatment import check_copies

if TYPE_CHECKING:
    from beam_pipeline.pipeline import Job

PathLike = str | os.PathLike[str]
# A path, a table in memory, several of them, or one for each split.
Source = PathLike | Sequence[Any] | Mapping[str, Any] | Any

FIRST_ROWS = 20
WATCH_S = 2.0

_SECRET = re.compile("secret|password|token|access_key", re.IGNORECASE)
_ENDED = (
    "The runner ended the job as {}. Shards that were finished are kept: give the same "
    "command again to continue."
)
# Fields of the recipe that Python may give as lists.
COMMA_LISTS = (
    "classes", "event_targets", "target_columns", "column_names", "columns", "group_by",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to run, which decides no byte of the data set.

    Attributes
    ----------
    max_rejected : int or str
        How many clips may be rejected, or what percentage: ``5`` or ``"1%"``.
    overwrite : bool
        Replace the data set that is in the output folder.
    workers : int, optional
        Processes on this machine. Default: one a core, if the job is large enough.
    work_dir : path, optional
        Where unfinished shards lie. Default: ``_work`` in the output folder.
    beam_args : sequence of str
        Options of Beam; with a ``--runner`` among them the job goes there.
    """

    max_rejected: int | str = 0
    overwrite: bool = False
    workers: int | None = None
    work_dir: PathLike | None = None
    beam_args: Sequence[str] = ()

    def __post_init__(self) -> None:
        allowed_rejects(str(self.max_rejected), 0)
        if not isinstance(self.overwrite, bool):
            raise RecipeError("overwrite", "must be True or False", self.overwrite)
        if self.workers is not None:
            if isinstance(self.workers, bool) or not isinstance(self.workers, int):
                raise RecipeError("workers", "must be a whole number", self.workers)
            if self.workers < 1:
                raise RecipeError("workers", "must be at least 1", self.workers)
        if self.beam_args and not self.has_runner():
            raise RecipeError(
                "options of Beam", "name no --runner to give them to", self.beam_args
            )
        for text in self.beam_args:
            name = text.partition("=")[0]
            if _SECRET.search(name):
                # Without its value: errors are logged.
                raise RecipeError(
                    "options of Beam",
                    "would write a secret into the job and its logs; set it in the "
                    "environment of the workers, as AWS_SECRET_ACCESS_KEY and the like",
                    name,
                )

    def has_runner(self) -> bool:
        """Whether the job goes to a runner of Beam, instead of this machine."""
        return self.has("--runner")

    def is_template(self) -> bool:
        """Whether the job is only described, to be started by a service later."""
        return self.has("--template_location")

    def has(self, name: str) -> bool:
        """Whether an option of Beam is given."""
        return any(text.partition("=")[0] == name for text in self.beam_args)


def record(
    input: Source,
    output: PathLike,
    *,
    recipe: Recipe | None = None,
    watch: Callable[..., Any] | None = None,
    counted: Callable[[Mapping[str, int]], Any] | None = None,
    **options: Any,
) -> Metadata:
    """Records audio as sharded GZIP TFRecords of ``tf.train.Example``.

    ::

        record("sounds/", "records/", win_seconds=1.0,
               features={"log_mel": LogMel(n_mels=64)})

    Parameters
    ----------
    input : path, table, sequence or mapping of them
        Folders, globs, audio files, manifests, or text files of paths; on any Beam file
        system. Tables in memory are a list of dicts or a data frame (of pandas, polars
        or pyarrow), with the columns of a manifest; their paths are relative to the
        current folder. A mapping gives each split its own: ``{"train": ...}``.
    output : path
        A folder: empty, not there yet, or with an unfinished run of the same recipe,
        which is continued.
    recipe : Recipe, optional
        Starting point for the fields of :class:`Recipe` given as keywords.
    watch : callable, optional
        Progress: called with the totals, returns what is called with the examples and
        seconds done.
    counted : callable, optional
        Called with the counters of a runner of Beam when its job is done.
    **options
        Fields of :class:`Recipe`, where values of ``features`` may also be transforms,
        and ``label_from`` a mapping from paths to classes; and of :class:`RunOptions`.

    Returns
    -------
    Metadata
        Of the finished data set.

    Raises
    ------
    RecipeError, InputError, OutputError
        Before anything is written.
    TooManyRejected
        After everything else is written.
    EngineError
        If the runner's engine cannot be reached; before anything is written.
    IncompleteRun, WorkerDied
        If the runner failed; the same call continues.
    """
    from beam_pipeline.local import run_local

    input, options = with_labels(input, options)
    recipe, run = split_options(recipe, options)
    if run.is_template():
        raise RecipeError(
            "--template_location", "records nothing; see write_template", run.beam_args
        )
    if run.has_runner():
        check_engine(run.beam_args)
    with claimed_job(input, output, recipe, run) as job:
        if run.has_runner():
            with watching(job.work_folder, watch):
                counts = run_on_engine(job, run.beam_args)
            if counted is not None:
                counted(counts)
        else:
            run_local(job, run.workers, watch)
        return Metadata.load(job.output)


def write_template(
    input: Source,
    output: PathLike,
    *,
    recipe: Recipe | None = None,
    **options: Any,
) -> None:
    """Describes the job of :func:`record` in a file, for a service to start it later.

    ``beam_args`` name the runner that does so and the file, by ``--template_location``.
    """
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    from beam_pipeline.pipeline import build_pipeline

    input, options = with_labels(input, options)
    recipe, run = split_options(recipe, options)
    check_engine(run.beam_args)
    with claimed_job(input, output, recipe, run) as job:
        pipeline = beam.Pipeline(options=PipelineOptions(list(run.beam_args)))
        build_pipeline(pipeline, job)
        pipeline.run()


@contextmanager
def claimed_job(
    input: Source,
    output: PathLike,
    recipe: Recipe,
    run: RunOptions,
) -> Iterator[Job]:
    """Checks what can be checked before, and claims the output for the block."""
    from beam_pipeline.pipeline import Job

    with resolved(input, recipe) as inputs:
        check_transforms(recipe, inputs)
        if not os.fspath(output):
            raise InputError("--output is empty. Give a folder.")
        output = files.absolute(os.fspath(output))
        work = files.join(output, WORK_FOLDER)
        if run.work_dir is not None:
            work = files.absolute(os.fspath(run.work_dir))
            check_work_folder(work, output, inputs)
        placed = [place_rows(entry, work) for entry in inputs]
        with locked(work), nothing_left(output, work):
            claim_output(output, work, recipe, placed, run.overwrite)
            for given, entry in zip(inputs, placed, strict=True):
                if given is not entry:
                    files.write_bytes(entry.location, files.read_bytes(given.location))
            with continuing():
                yield Job(
                    tuple(placed),
                    files.join(output, ""),
                    work,
                    recipe,
                    str(run.max_rejected),
                )


def place_rows(entry: Input, work: str) -> Input:
    """The input as workers find it: rows that were given in memory lie with the run."""
    if not entry.in_memory or entry.table is None:
        return entry
    name = entry.location.rpartition("/")[2]
    location = files.join(work, f"{ROWS}/{name}")
    return replace(
        entry, location=location, table=replace(entry.table, location=location)
    )


@contextmanager
def continuing() -> Iterator[None]:
    """Adds to a store's error what only a run can advise: to go on with it."""
    try:
        yield
    except StoreError as error:
        if len(error.args) > 2:
            raise
        advice = "What is finished is kept: give the same command again to continue."
        raise StoreError(*error.args, advice) from error


class Labelled(NamedTuple):
    """An input whose classes are not in its names, but given one by one."""

    source: Source
    classes: Mapping[str, str]


def with_labels(
    input: Source, options: Mapping[str, Any]
) -> tuple[Source | Labelled, dict[str, Any]]:
    """Takes a mapping as ``label_from`` over to the input, where it makes a column."""
    classes = options.get("label_from")
    if not isinstance(classes, Mapping):
        return input, dict(options)
    return Labelled(input, classes), {**options, "label_from": "class"}


@contextmanager
def resolved(input: Source | Labelled, recipe: Recipe) -> Iterator[list[Input]]:
    """The inputs of :func:`record`; tables in memory are in files for the block."""
    classes = None
    if isinstance(input, Labelled):
        input, classes = input
    with tempfile.TemporaryDirectory(prefix="audio-tfrecords-rows-") as folder:

        def locate(entry: Any) -> str:
            if is_rows(entry):
                return write_rows(entry, folder)
            if isinstance(entry, str | os.PathLike):
                return os.fspath(entry)
            raise InputError(
                f"The input {entry!r:.80} is neither a path nor a table: a list of "
                "dicts, or a data frame."
            )

        if isinstance(input, Mapping):
            texts = [f"{split}={locate(entry)}" for split, entry in input.items()]
        elif is_rows(input) or isinstance(input, str | os.PathLike):
            texts = [locate(input)]
        else:
            texts = [locate(entry) for entry in input]
        inputs = []
        for entry in resolve_inputs(texts):
            if entry.root == folder:
                # Paths in them are those of the program that made them.
                entry = replace(entry, root=os.getcwd(), in_memory=True)
            inputs.append(entry)
        if classes is not None:
            inputs = [
                Input(TABLE, write_rows(rows, folder), entry.root, entry.split,
                      in_memory=True)
                for entry, rows in zip(
                    inputs, labelled_rows(inputs, classes), strict=True
                )
            ]  # fmt: skip
        yield survey(inputs, recipe)


def run_on_engine(job: Job, beam_args: Sequence[str]) -> dict[str, int]:
    """Runs the job on a runner of Beam and waits for it; returns its counters.

    Raises
    ------
    AudioTFRecordsError
        What a worker has raised, wherever that was, or IncompleteRun if the runner
        ended the job without a word.
    """
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.runner import PipelineState

    from beam_pipeline.local import original
    from beam_pipeline.pipeline import build_pipeline

    pipeline = beam.Pipeline(options=PipelineOptions(list(beam_args)))
    build_pipeline(pipeline, job)
    result = None
    try:
        result = pipeline.run()
        state = result.wait_until_finish() or result.state
    except Exception as error:
        ours = read_verdict(job.work_folder) or original(error)
        ours = explain_start(error, beam_args) or ours
        if isinstance(ours, AudioTFRecordsError):
            raise ours from error
        state = "never started"
        if result is not None:
            state = "FAILED"  # unless it can still be asked
            with suppress(Exception):
                state = result.state
        raise IncompleteRun(_ENDED.format(f"{state} ({_reason(error)})")) from error
    if state != PipelineState.DONE:
        raise read_verdict(job.work_folder) or IncompleteRun(_ENDED.format(state))
    if not files.exists(files.join(job.output, METADATA)):
        cause = "its workers must see --input and --output, and write there"
        raise IncompleteRun(
            _ENDED.format(f"{state}, yet there is no {METADATA} ({cause})")
        )
    return read_counters(result)


def _reason(error: Exception) -> str:
    """One line: of a worker's traceback what it ends with, of gRPC's what it says."""
    details = getattr(error, "details", None)
    text = str(details()) if callable(details) else str(error)
    lines = text.strip().splitlines() or [type(error).__name__]
    return lines[-1].strip()


def read_counters(result: Any) -> dict[str, int]:
    """The job's counters, which have the same names on every runner."""
    from apache_beam.metrics import MetricsFilter

    from beam_pipeline.sink import COUNTERS

    found = result.metrics().query(MetricsFilter().with_namespace(COUNTERS))
    counts: Counter[str] = Counter()
    for counter in found["counters"]:
        counts[counter.key.metric.name] += counter.result or 0
    return dict(sorted(counts.items()))


@contextmanager
def watching(work: str, watch: Callable[..., Any] | None) -> Iterator[None]:
    """Tells the watcher what stands in the work folder, while the block runs."""
    if watch is None:
        yield
        return
    done = threading.Event()
    started: list[tuple[Totals, Callable[[int, float], Any]]] = []

    def keep_telling() -> None:
        while not done.wait(WATCH_S):
            # The folder goes at the end, and a look that fails is made again.
            with suppress(OSError, InputError, StoreError):
                seen = read_progress(work)
                if seen.totals.examples:
                    if not started:
                        started.append((seen.totals, watch(seen.totals)))
                    started[0][1](seen.examples, seen.seconds)

    thread = threading.Thread(target=keep_telling, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    for totals, report in started:
        report(*totals)


def plan(
    input: Source,
    *,
    recipe: Recipe | None = None,
    **options: Any,
) -> tuple[PlanSummary, list[Reject]]:
    """What :func:`record` would do, from headers alone; writes nothing.

    Returns
    -------
    PlanSummary
        Splits, shards, examples and seconds.
    list of Reject
        Clips that cannot be taken, as far as headers tell.
    """
    from beam_pipeline.local import plan_local
    from beam_pipeline.pipeline import Job

    input, options = with_labels(input, options)
    recipe, run = split_options(recipe, options)
    # A fingerprint decodes a clip, and decides nothing of what is planned.
    recipe = replace(recipe, fingerprint=False)
    with resolved(input, recipe) as inputs:
        check_transforms(recipe, inputs)
        with tempfile.TemporaryDirectory(prefix="audio-tfrecords-plan-") as work:
            job = Job(tuple(inputs), "", work, recipe, str(run.max_rejected))
            return plan_local(job)


def split_options(
    recipe: Recipe | None, options: Mapping[str, Any]
) -> tuple[Recipe, RunOptions]:
    """Keywords -> the recipe, in its canonical form, and the run's options.

    Raises
    ------
    RecipeError
        If a keyword or its value is wrong.
    """
    recipe_names = {f.name for f in fields(Recipe)}
    run_names = {f.name for f in fields(RunOptions)}
    for name in options:
        if name not in recipe_names | run_names:
            raise RecipeError(
                "record",
                f"has no option like this, only "
                f"{', '.join(sorted(recipe_names | run_names))}",
                name,
            )
    changes = {n: v for n, v in options.items() if n in recipe_names}
    if "features" in changes:
        changes["features"] = features_as_text(changes["features"])
    for name in COMMA_LISTS:
        if isinstance(changes.get(name), list | tuple):
            changes[name] = comma_text(changes[name])
    if isinstance(changes.get("splits"), Mapping):
        changes["splits"] = ",".join(f"{n}={s}" for n, s in changes["splits"].items())
    for name, kind in STEP_FIELDS.items():
        steps = changes.get(name)
        if steps and not isinstance(steps, str):
            steps = getattr(steps, "steps", steps)  # of a chain
            several = steps if isinstance(steps, list | tuple) else [steps]
            changes[name] = format_steps(several, kind)
    made = Recipe(**changes) if recipe is None else replace(recipe, **changes)
    canonical: dict[str, Any] = {
        name: format_steps(getattr(made, name), kind)
        for name, kind in STEP_FIELDS.items()
        if getattr(made, name)
    }
    canonical["features"] = canonical_features(made)
    run = RunOptions(**{n: v for n, v in options.items() if n in run_names})
    return replace(made, **canonical), run


def features_as_text(features: Mapping[str, Any]) -> dict[str, str]:
    """Transforms as expressions; expressions as they are."""
    if not isinstance(features, Mapping):
        raise RecipeError("features", "must map names to transforms", features)
    texts = {}
    for name, transform in features.items():
        with naming_feature(name):
            is_text = isinstance(transform, str)
            texts[name] = transform if is_text else format_transform(transform)
    return texts


def canonical_features(recipe: Recipe) -> dict[str, str]:
    """The recipe's features as canonical expressions, sorted by name.

    They say what is stored: a last ``identity()`` gets the recipe's dtype here.
    """
    canonical = {}
    for name, text in sorted(recipe.features.items()):
        with naming_feature(name):
            canonical[name] = format_transform(parse_transform(text, recipe.dtype))
    return canonical


def check_transforms(recipe: Recipe, inputs: Sequence[Input]) -> None:
    """Runs every transform on silence shaped like the first clip that can be read.

    Raises
    ------
    InputError
        If the inputs hold no audio file.
    RecipeError
        If a transform does not work.
    """
    from beam_pipeline.clips import Prober

    check_copies(recipe, shares_of(recipe) or filter(None, (e.split for e in inputs)))
    check_label_column(recipe, inputs)
    rows = (row for row in list_sources(inputs, recipe) if row is not None)
    first = list(islice(rows, FIRST_ROWS))
    recipe = replace(recipe, fingerprint=False)  # the job itself decodes
    if not first:
        places = ", ".join(entry.location for entry in inputs)
        raise InputError(f"There is no audio file in {places}. Check --input.")
    prober = Prober(inputs, recipe)
    for row in first:
        clip = prober.probe(row)
        if isinstance(clip, Clip):
            labels = set() if clip.label is None else {clip.label}
            if recipe.events is not None:
                # Not one may have been found in this clip.
                labels = {event.label for event in clip.events} or {"?"}
                labels.update(named_no_event(recipe))
            corpus = Corpus(
                tuple(sorted(labels)), {clip.sample_rate_hz: 1}, {clip.channels: 1}
            )
            Format.of(corpus, recipe, inputs[0].columns)
            return


def check_label_column(recipe: Recipe, inputs: Sequence[Input]) -> None:
    """Raises RecipeError if a column is to give the classes, and events give them.

    It is no check of the recipe alone: data sets may have been recorded with one that
    had both, and are to be read.
    """
    if recipe.events is None or recipe.label_from in LABEL_SOURCES:
        return
    if any(e.table is not None and recipe.label_from in e.table.names for e in inputs):
        raise RecipeError(
            "label_from",
            "cannot be a column with --events, which give the classes; leave it out, "
            "and the column is a plain one, which --columns may name",
            recipe.label_from,
        )


@contextmanager
def quiet_beam() -> Iterator[None]:
    """Keeps Beam's log down to what is for people: errors are raised anyway."""
    logger = logging.getLogger("apache_beam")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
