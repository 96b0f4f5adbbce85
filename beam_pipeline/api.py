"""The functions that Python users call: ``record``, ``plan`` and ``write_template``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from beam_pipeline.dataset.job import Job, nothing_new, started
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.progress import Watch, in_notebook, watch_bar
from beam_pipeline.dataset.side_by_side import check_skipped, given_recipe
from beam_pipeline.errors import OptionError, OutputError
from beam_pipeline.inputs.listing import GivenInput, resolved, with_labels
from beam_pipeline.parameters import check_whole
from beam_pipeline.planning.clips import drop_changed
from beam_pipeline.recipe.canonical import list_keywords, split_options
from beam_pipeline.recipe.recipe import Recipe, RunOptions
from beam_pipeline.reporting.problems import warn_of_data, warn_of_plan
from beam_pipeline.run.engine import (
    as_sent,
    check_beam_args,
    check_engine,
    check_runner,
    pipeline_for,
    run_on_engine,
)
from beam_pipeline.run.workers import check_can_start, limit_of
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import WORK_FOLDER, delete_empty
from beam_pipeline.storage.files import PathLike, temporary_folder

if TYPE_CHECKING:
    from beam_pipeline.recipe.keywords import RecordKeywords
    from beam_pipeline.run.local import Plan

# So many are compared with a data set that is finished already.
EXAMPLES_AGAIN = 8


@list_keywords
def record(
    input: GivenInput,
    output: PathLike,
    *,
    recipe: Recipe | Metadata | PathLike | None = None,
    watch: Watch | bool | None = None,
    counted: Callable[[Mapping[str, int]], Any] | None = None,
    found: Callable[[Metadata], Any] | None = None,
    **options: Unpack[RecordKeywords],
) -> Metadata:
    """Records audio as sharded GZIP TFRecords of ``tf.train.Example``.

    ::

        record("sounds/", "records/", win_seconds=1.0,
               features={"log_mel": LogMel(n_mels=64)})

    Parameters
    ----------
    input : path, table, sequence or mapping of them
        Folders, globs, audio files, manifests, or text files of paths, on any file
        system of Beam. A table in memory is a list of dicts or a data frame (of pandas,
        polars or pyarrow) with the columns of a manifest; its paths are relative to the
        current folder. A mapping gives each split its inputs: ``{"train": ...}``.
    output : path
        A folder that is new, empty, or has an unfinished run of the same job, which is
        continued. A finished data set of the same recipe and inputs stays as it is;
        :mod:`beam_pipeline.dataset.job` lists what is compared.
    recipe : Recipe, Metadata or path, optional
        Options to start from; keywords override them. A path is that of a YAML file or
        of a data set. The metadata of a data set bring its classes, too, so that
        targets mean the same; a clip of any other class is rejected.
    watch : callable or bool, optional
        Whether there is a progress bar; default: only in a notebook. A callable is
        called once with the totals, and returns a function that is called with the
        number of finished examples and their seconds of audio.
    counted : callable, optional
        Called with the counters of the job, if a runner of Beam ran it.
    found : callable, optional
        Called with the metadata if the output already holds this data set.
    **options
        The options of :class:`Recipe` and of a run. ``audio-tfrecords record --help``
        explains them: ``win_seconds=1.0`` is ``--win-seconds 1``. Here, lists of names
        may be lists, ``splits`` may map names to shares, transforms may be objects, and
        ``label_from`` may map paths to classes.

    Returns
    -------
    Metadata
        The metadata of the finished data set. They have no splits, and there is no
        folder, if ``skip_recorded`` leaves nothing to record.

    Warns
    -----
    DataSetWarning
        If the data set is probably not what was meant: a split lacks examples or
        classes, clips differ in sample rate, or features have NaN.

    Raises
    ------
    OptionError, InputError, OutputError
        If an option, an input or the output cannot be used; nothing is recorded then.
    EngineError
        If the runner's engine cannot be reached; nothing is recorded then.
    TooManyRejected
        If more clips are rejected than ``max_rejected``; everything else is written.
    IncompleteRun, WorkerDied
        If the job failed, or clips could not be read because the machine failed; the
        same call continues it.
    """
    input, recipe, run = _parse_call(input, recipe, options)
    check_runner(run)
    with (
        _job(input, output, recipe, run) as asked,
        ExitStack() as bars,
        started(asked, run, _compare) as job,
    ):
        if watch is True or (watch is None and in_notebook()):
            watch = partial(watch_bar, bars)
        empty = None if job is None else _run(job, run, watch or None, counted)
    if empty is not None:  # everything was recorded before
        if files.is_local(asked.output):
            delete_empty([asked.output])
        return empty
    metadata = Metadata.load(asked.output)
    warn_of_data(asked.output, metadata, asked.recipe)
    if job is None and found is not None:
        found(metadata)
    return metadata


def _run(
    job: Job,
    run: RunOptions,
    watch: Watch | None,
    counted: Callable[[Mapping[str, int]], Any] | None,
) -> Metadata | None:
    """Runs a job on this machine, or on an engine; see :func:`nothing_new`."""
    from beam_pipeline.run.local import run_local

    if run.has_runner():
        counts = run_on_engine(job, run.beam_args, run.time_limit, watch)
        if counted is not None:
            counted(counts)
    else:
        run_local(job, run.workers, run.time_limit, watch)
    return nothing_new(job)


def _parse_call(
    input: GivenInput,
    recipe: Recipe | Metadata | PathLike | None,
    options: Mapping[str, Any],
) -> tuple[GivenInput, Recipe, RunOptions]:
    """Returns the input without classes of its own, the recipe, and how to run it."""
    input, given = with_labels(input, options)
    return input, *split_options(given_recipe(recipe), given)


@contextmanager
def _job(
    input: GivenInput,
    output: PathLike,
    recipe: Recipe,
    run: RunOptions,
    work: str | None = None,
) -> Iterator[Job]:
    """Yields a job that was checked, as far as that is possible without its output.

    Without ``work`` it has an output, and its work folder is there, or where the user
    wants it. With ``work`` it is only planned, there.
    """
    from beam_pipeline.run.local import check_transforms

    with resolved(input, recipe) as inputs:
        check_can_start(run.workers, run.time_limit)
        check_transforms(recipe, inputs, run.time_limit)
        given = run.skip_recorded
        paths = files.path_texts("skip_recorded", given) if given else ()
        skipped = tuple(map(files.absolute, paths))
        check_skipped(skipped, recipe, inputs)
        if work is None:
            output = files.given_path("output", output).rstrip("/") or "/"
            work = files.join(output, WORK_FOLDER)
            if run.work_dir is not None:
                work = files.given_path("work_dir", run.work_dir)
        yield Job(
            tuple(inputs),
            str(output),
            work,
            recipe,
            str(run.max_rejected),
            skip_recorded=skipped,
            allow_unreadable=run.allow_unreadable,
        )


@list_keywords
def write_template(
    input: GivenInput,
    output: PathLike,
    *,
    recipe: Recipe | Metadata | PathLike | None = None,
    **options: Unpack[RecordKeywords],
) -> None:
    """Writes the job of :func:`record` to a file, from which a service can start it.

    Takes the options of :func:`record`. ``beam_args`` must contain ``--runner``, and
    ``--template_location`` with the file.

    Raises
    ------
    OptionError
        If ``beam_args`` names no file; and as :func:`record`.
    """
    from beam_pipeline.pipeline.graph import build_pipeline

    input, recipe, run = _parse_call(input, recipe, options)
    if not run.is_template():
        need = "needs --template_location with the file of the job"
        raise OptionError("beam_args", need, run.beam_args)
    check_engine(run.beam_args)
    with (
        _job(input, output, recipe, run) as asked,
        started(asked, run, _compare) as job,
    ):
        if job is None:
            raise OutputError(
                f"{os.fspath(output)} already holds this data set, and it is complete. "
                "Give another `output`, or give `overwrite` to replace it."
            )
        limit_s = limit_of(run.time_limit)
        drop_changed(job.work_folder, job.inputs, limit_s)
        with pipeline_for(run.beam_args) as pipeline:
            build_pipeline(pipeline, as_sent(replace(job, limit_s=limit_s)))
            pipeline.run()


def _compare(job: Job) -> str | None:
    """Returns how the data set in an output differs from the one of a job."""
    from beam_pipeline.dataset.job import difference_to_recorded
    from beam_pipeline.read.verify import read_recorded, sample_problems

    def make_again(metadata: Metadata, clips: set[int]) -> Iterator[str]:
        recorded = read_recorded(job.output, metadata)
        return sample_problems(recorded, job.inputs, EXAMPLES_AGAIN, clips=clips)

    return difference_to_recorded(job, make_again)


@list_keywords
def plan(
    input: GivenInput,
    *,
    recipe: Recipe | Metadata | PathLike | None = None,
    sample: int = 0,
    **options: Unpack[RecordKeywords],
) -> Plan:
    """Plans what :func:`record` would do, from headers alone; writes nothing.

    Takes the parameters of :func:`record`, except ``output``.

    Parameters
    ----------
    sample : int
        How many examples to make, chosen at random, for a forecast of bytes and
        seconds. Each brings the windows of its clip that a worker holds at once. This
        decodes audio and runs transforms. Default: none, and no forecast.

    Returns
    -------
    Plan
        A pair: ``summary``, with splits, shards, examples and seconds; and
        ``rejects``, clips that cannot be recorded, as far as headers show, in the order
        of the inputs. These are on disk if they are many. Its attribute ``forecast`` is
        a :class:`beam_pipeline.run.local.Forecast`, or None without a sample.

    Raises
    ------
    OptionError
        If ``sample`` is not a whole number, or negative; and as :func:`record`.

    Warns
    -----
    DataSetWarning
        As :func:`record` does, as far as headers show.
    """
    from beam_pipeline.run.local import plan_local

    check_whole("sample", sample, least=0)
    input, recipe, run = _parse_call(input, recipe, options)
    if run.has_runner():
        check_beam_args(run.beam_args)
    # Hashes read whole files, and do not change the plan.
    recipe = recipe.replace(hash_files=False)
    with temporary_folder() as work, _job(input, "", recipe, run, work) as job:
        made = plan_local(job, run.time_limit, sample)
    warn_of_plan(made.summary, recipe)
    return made
