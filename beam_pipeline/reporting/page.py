"""The page: everything in one HTML file, which needs no network and no server."""

from __future__ import annotations

import base64
import importlib.resources
import json
import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import chain
from typing import Any

import numpy as np

from beam_pipeline.arrays import Integers
from beam_pipeline.audio.clip_reader import ClipReader, probe_audio
from beam_pipeline.dataset import side_by_side
from beam_pipeline.dataset.folders import MANIFEST
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.tables import read_rejects, read_table
from beam_pipeline.errors import ClipError, DataSetWarning, OptionError
from beam_pipeline.parameters import check_whole
from beam_pipeline.read import example_view
from beam_pipeline.read.audit import audit, codes_of
from beam_pipeline.read.choices import check_name
from beam_pipeline.read.records import open_records
from beam_pipeline.read.show import stored_sound
from beam_pipeline.read.window_table import examples_of, input_roots, window_table
from beam_pipeline.recipe.recipe import recipe_options
from beam_pipeline.reporting import DEFAULT_BYTES, DEFAULT_CLIPS
from beam_pipeline.reporting.problems import (
    Sample,
    name_unchecked,
    paths_to_hear,
    report_problems,
)
from beam_pipeline.storage import files

# Percent of the bytes of the page; its tables take no more than the others.
_FOR_SOUNDS = 80
_VALUES_SHOWN = 8
_SHOWN_ELSEWHERE = ("class", "copy", "filepath", "fs", "index", "win_start_idx")
_LENGTH_BARS = 30
_KINDS_SHOWN, _FILES_SHOWN, _SHARDS_SHOWN = 30, 200, 500

_OF_CLIPS = [
    "frames", "sample_rate_hz", "native_sample_rate_hz", "channels", "format",
    "subtype", "windows",
]  # fmt: skip


def report(
    folder: side_by_side.Folders,
    output: str | os.PathLike[str] | None = None,
    *,
    clips: int = DEFAULT_CLIPS,
    bytes: int = DEFAULT_BYTES,
    seed: int = 0,
    examples: Mapping[str, Sequence[int]] | None = None,
    input: side_by_side.Folders | None = None,
) -> str:
    """Writes a page that shows a data set, and returns its path.

    ::

        report("records/", "report.html")

    It shows what the data set is, what may be wrong with it, and lets one hear some of
    it. The file holds all that it needs: no network, no server. Its example 12 of the
    split ``test`` has the link ``report.html#test-12``.

    Parameters
    ----------
    folder : path or sequence of paths
        A finished data set, on any file system; or several that belong together, which
        the page shows as one.
    output : path, optional
        The file, which ends in ``.html``; an existing one is replaced. Default: named
        after the data set, in the current folder: ``records-report.html``.
    clips : int
        How many examples can be heard; 0: none. Five times as many are read and
        measured.
    bytes : int
        About how large the file may become; fewer examples can be heard if they do not
        fit.
    seed : int
        Chooses the examples.
    examples : mapping, optional
        Examples that come first, whatever the seed: their numbers in each split,
        ``{"test": [12, 80]}``.
    input : path or sequence of paths, optional
        What the data set was recorded from, or all of them. Of examples that hold no
        samples, the stretches of the files are then measured and heard.

    Raises
    ------
    InputError
        If there is no data set, or its files are damaged; if several do not belong
        together; or if the inputs are not those of it.
    OptionError
        If a number is negative, there is no such example, ``examples`` has another
        form, or the output does not end in ``.html``.
    OutputError
        If the file cannot be written.
    """
    for name, value in (("clips", clips), ("bytes", bytes), ("seed", seed)):
        check_whole(name, value, 0)
    try:
        asked = {name: list(numbers) for name, numbers in (examples or {}).items()}
    except (AttributeError, TypeError):
        need = "must be numbers of examples in each split: {'test': [12, 80]}"
        raise OptionError("examples", need, examples) from None
    data = side_by_side.open_data_sets(folder)
    default = f"{_name(data, '-')}-report.html"
    path = files.given_path("output", default if output is None else output)
    files.check_file("output", path, ".html")
    metadata = data.metadata
    of_audio = all(map(side_by_side.has_tables, data.folders))
    audited = audit(data.folders) if of_audio else None
    rejects = _rejects(data) if metadata.recipe is not None else []
    table = examples_of(window_table(data.folders, sources=True))
    leaks = paths_to_hear(audited) if audited else []
    samples = draw_samples(data, table, clips, seed, leaks, asked)
    roots = input_roots(input, table) if input is not None and of_audio else []
    measure(samples, metadata, roots)
    problems = report_problems(metadata, audited, table, samples, rejects)
    order = in_order(samples, [s for problem in problems for s in problem.samples])
    shown, budget = list[dict[str, Any]](), bytes * _FOR_SOUNDS // 100
    ids: dict[Sample, int] = {}
    for sample in order[:clips]:
        sound = encode_sample(sample, metadata, roots)
        held = len(sound["flac"]) if sound else 0
        if held > budget:
            break
        budget -= held
        ids[sample] = len(shown)
        shown.append(_describe(sample, sound, metadata))
    if order[:clips] and not shown:
        least = -(-held * 100 // _FOR_SOUNDS)
        warnings.warn(
            f"No example can be heard: the first does not fit. Give `bytes` = {least} "
            "or more",
            DataSetWarning,
            stacklevel=2,
        )
    contents = {
        "name": _name(data, " + "),
        "folder": data.name,
        **_describe_data_set(metadata),
        "audio": _audio(data) if of_audio else {},
        "rejects": rejects,
        "unchecked": name_unchecked(metadata, audited, table, samples),
        "problems": [
            {
                **problem._asdict(),
                "samples": [ids[s] for s in problem.samples if s in ids],
            }
            for problem in problems
        ],
        "samples": shown,
        "measured": len(samples),
    }
    files.write_bytes(path, _fill(contents))
    return path


def _name(data: side_by_side.DataSets, between: str) -> str:
    """Returns the names of the folders of data sets."""
    names = (folder.rstrip("/") for folder in data.folders)
    return between.join(os.path.basename(name) or "records" for name in names)


def _describe_data_set(metadata: Metadata) -> dict[str, Any]:
    """Returns the metadata as JSON, without most shards, and what is asked for."""
    values, shards = metadata.to_json(), list(metadata.shards())
    for split in values["splits"].values():
        split["shards"] = split["shards"][:_SHARDS_SHOWN]
    given: Mapping[str, Any] = values.get("options", {})
    asked: Mapping[str, float] = {}
    if metadata.recipe is not None:
        options, recipe = recipe_options(), values["recipe"]
        given = {n: v for n, v in recipe.items() if v != options[n].default}
        asked = metadata.recipe.hashed_shares() or {}
    return {
        "metadata": values,
        "given": given,
        "asked": asked,
        "shards": {"count": len(shards), "bytes": sum(each.bytes for each in shards)},
    }


def _audio(data: side_by_side.DataSets) -> dict[str, Any]:
    """Returns hours, rates, formats and a histogram of lengths of the clips."""
    clips = side_by_side.concatenated(
        [read_table(folder, MANIFEST, _OF_CLIPS) for folder in data.folders]
    )
    seconds = clips["frames"].to_numpy() / clips["sample_rate_hz"].to_numpy()
    counts, edges = np.histogram(seconds, _LENGTH_BARS)
    forms = zip(clips["format"].to_pylist(), clips["subtype"].to_pylist(), strict=True)
    columns = {
        "rates": (f"{rate} Hz" for rate in clips["native_sample_rate_hz"].to_pylist()),
        "channels": map(str, clips["channels"].to_pylist()),
        "formats": map(" ".join, forms),
    }
    return {
        "clips": len(seconds),
        "hours": float(seconds.sum()) / 3600,
        "without_windows": int(np.sum(clips["windows"].to_numpy() == 0)),
        "lengths": {"edges": edges.tolist(), "counts": counts.tolist()},
        **{name: dict(Counter(each).most_common()) for name, each in columns.items()},
    }


def _rejects(data: side_by_side.DataSets) -> list[dict[str, Any]]:
    """Returns the rejected files by the kind of their error, most frequent first."""
    by_error: dict[str, list[dict[str, str]]] = defaultdict(list)
    for reject in chain.from_iterable(map(read_rejects, data.folders)):
        file = {"path": reject.path, "reason": reject.reason}
        by_error[reject.error].append(file)
    kinds = sorted(by_error.items(), key=lambda item: -len(item[1]))[:_KINDS_SHOWN]
    return [
        {"error": error, "count": len(each), "files": each[:_FILES_SHOWN]}
        for error, each in kinds
    ]


def _describe(
    sample: Sample, sound: Mapping[str, Any] | None, metadata: Metadata
) -> dict[str, Any]:
    """Returns JSON values for one example."""
    values = sample.values
    names = sorted({*values} & {*metadata.features} - {*_SHOWN_ELSEWHERE})
    small = {n: values[n] for n in names if np.size(values[n]) <= _VALUES_SHOWN}
    return {
        "split": sample.split,
        "number": sample.number,
        "label": sample.label,
        "path": sample.path,
        "start_s": sample.row.get("start_s"),
        "copy": sample.row.get("copy", 0),
        "why": sample.why,
        "peak": round(sample.peak, 6) if np.isfinite(sample.peak) else None,
        "sound": sound,
        "values": {
            name: value
            if isinstance(value, str)
            else example_view.describe_value(value)
            for name, value in small.items()
        },
        "events": _events(values, metadata),
    }


def _events(values: Mapping[str, Any], metadata: Metadata) -> list[dict[str, Any]]:
    """Returns where in a window each class is heard, as parts of 0 to 1."""
    found = []
    for name in metadata.features:
        mask = np.asarray(values.get(name))
        shape = (len(mask), len(metadata.classes)) if mask.ndim else ()
        if not name.endswith("_mask") or mask.shape != shape:
            continue
        for label, column in zip(metadata.classes, mask.T, strict=True):
            edges = np.flatnonzero(np.diff(np.r_[0, column != 0, 0].astype(int)))
            for first, last in edges.reshape(-1, 2).tolist():
                share = first / len(mask), last / len(mask)
                found.append({"label": label, "from": share[0], "to": share[1]})
        break
    return found


def _fill(contents: Mapping[str, Any]) -> bytes:
    """Returns the HTML file with these contents."""
    data = json.dumps(contents, ensure_ascii=False, allow_nan=False)
    # No text in the data can end the element that holds it.
    data = data.replace("<", "\\u003c")
    page = _asset("page.html")
    for name, text in (
        ("title", escape(f"{contents['name']} - data set report")),
        ("style", _asset("page.css")),
        ("script", _asset("page.js")),
        ("data", data),
    ):
        page = page.replace(f"{{{{{name}}}}}", text, 1)
    return page.encode()


def _asset(name: str) -> str:
    return importlib.resources.files(__package__).joinpath(name).read_text("utf-8")


# Examples that are measured for each one that is shown.
_MEASURED_FOR_EACH = 5
_EXTREMES = 4
_ASKED_FOR = "asked for"
_FULL_SCALE = 0.999

# Browsers decode FLAC at these rates; faster sounds are slowed down by a whole factor.
_LOWEST_HZ, _HIGHEST_HZ = 8000, 96000
_LONGEST_S = 20.0


def draw_samples(
    data: side_by_side.DataSets,
    table: Any,
    clips: int,
    seed: int,
    paths: Sequence[str],
    examples: Mapping[str, Sequence[int]],
) -> list[Sample]:
    """Reads seeded examples of each class, and the loudest and the quietest ones.

    Parameters
    ----------
    table : pyarrow.Table
        The windows that are in the data set.
    clips : int
        How many examples will be shown; more are read, to be measured.
    paths : sequence of str
        Files of which the first example is read, too.
    examples : mapping
        Examples that are read, too: their numbers in each split.
    """
    reasons: dict[int, list[str]] = defaultdict(list)
    count = clips * _MEASURED_FOR_EACH
    for why, rows in _chosen(table, count, seed, paths, examples):
        for row in rows.tolist():
            reasons[row] += why
    of_split: dict[str, list[int]] = defaultdict(list)
    chosen = list(reasons)
    for place, split in zip(chosen, table["split"].take(chosen), strict=True):
        of_split[split.as_py()].append(place)
    samples = []
    for split, places in of_split.items():
        places.sort()
        rows = table.take(places).to_pylist()
        records = open_records(data.folders, split)[[row["record"] for row in rows]]
        for place, row, values in zip(places, rows, records, strict=True):
            label = example_view.class_of(values, data.metadata.classes)
            samples.append(Sample(row, values, reasons[place], label))
    return samples


def _chosen(
    table: Any,
    count: int,
    seed: int,
    paths: Sequence[str],
    examples: Mapping[str, Sequence[int]],
) -> Iterator[tuple[Sequence[str], Integers]]:
    """Yields rows of the table, and what they show."""
    splits = table["split"].to_numpy(zero_copy_only=False)
    for split, numbers in examples.items():
        check_name("split", split, dict.fromkeys(splits))
        rows = np.flatnonzero(splits == split)
        for number in numbers:
            if check_whole("examples", number, 0) >= len(rows):
                need = f"must be below {len(rows):,} in the split {split}, the number "
                raise OptionError("examples", f"{need}of its examples", number)
        yield [_ASKED_FOR], rows[numbers]
    of_label = np.zeros(len(table), np.int64)
    if "class" in table.column_names:
        _, of_label = codes_of(table["class"])
    # The rows of a class lie together.
    order = np.argsort(of_label, kind="stable")
    classes = np.split(order, np.flatnonzero(np.diff(of_label[order])) + 1)
    each, rng = max(2, count // len(classes)), np.random.default_rng(seed)
    for rows in classes:
        yield (), rng.choice(rows, min(each, len(rows)), replace=False)
    if "level_db" not in table.column_names:
        return
    levels = table["level_db"].to_numpy(zero_copy_only=False).astype(np.float64)
    order = np.argsort(levels, kind="stable")
    order = order[np.isfinite(levels[order])]
    yield ["quietest"], order[:_EXTREMES]
    yield ["loudest"], order[::-1][:_EXTREMES]
    values, codes = codes_of(table["path"])
    files = np.flatnonzero(np.isin(np.array(values.to_pylist(), object), paths))
    _, first = np.unique(codes, return_index=True)
    yield ["of a leak"], np.sort(first[files])


def sound_of(
    sample: Sample, metadata: Metadata, roots: Sequence[str]
) -> example_view.Sound | None:
    """Returns the samples of an example, or else its stretch of the file.

    None if it holds no samples, and its file is not given or cannot be read.

    Parameters
    ----------
    roots : sequence of str
        The folders of the inputs; none if no input was given.
    """
    stored, row = stored_sound(sample.values, metadata), sample.row
    if stored is not None or not roots:
        return stored
    path, first = files.join(roots[row["input"]], row["path"]), row["native_start"]
    channel = "mix" if row["channel"] is None else row["channel"]
    try:
        with files.open_read(path) as file:
            info = probe_audio(
                file, name=path, allow_truncated=True, allow_nonfinite=True
            )
            with ClipReader(file, info, name=path, channels=channel) as reader:
                samples = reader.read(first, first + row["native_frames"])
                return example_view.Sound(samples, info.sample_rate_hz)
    except (ClipError, OSError, ValueError):
        return None


def measure(
    samples: Sequence[Sample], metadata: Metadata, roots: Sequence[str]
) -> None:
    """Measures the sounds of examples, as far as there are any."""
    for sample in samples:
        sound = sound_of(sample, metadata, roots)
        if sound is not None:
            size = np.abs(example_view.as_float(sound.samples))
            sample.peak = float(size.max(initial=0.0))
            sample.clipped = float(np.mean(size >= _FULL_SCALE))


def in_order(samples: Sequence[Sample], of_problems: Sequence[Sample]) -> list[Sample]:
    """Returns what to show first: asked for, of problems, extremes, of each class."""
    asked = [sample for sample in samples if _ASKED_FOR in sample.why]
    first = [*asked, *of_problems, *(sample for sample in samples if sample.why)]
    turns: Counter[str] = Counter()
    others: list[tuple[int, str, int, Sample]] = []
    for sample in samples:
        if sample not in first:
            turns[sample.label] += 1
            others.append((turns[sample.label], sample.label, len(others), sample))
    return [*dict.fromkeys(first), *(sample for *_, sample in sorted(others))]


def encode_sample(
    sample: Sample, metadata: Metadata, roots: Sequence[str]
) -> dict[str, Any] | None:
    """Returns the sound of an example; None if there is neither signal nor input.

    A dict with ``flac`` (base64), its rate and the one that it declares, ``gain`` and
    ``cut_s``.
    """
    sound = sound_of(sample, metadata, roots)
    if sound is None:
        return None
    signal, rate = example_view.as_float(sound.samples), sound.rate
    if signal.ndim == 2:
        signal = signal.mean(axis=0)
    slowed = max(1, -(-rate // _HIGHEST_HZ))
    most = int(_LONGEST_S * rate)
    declared = max(rate // slowed, _LOWEST_HZ)
    flac, gain = example_view.encode_sound(signal[:most], declared, "FLAC")
    return {
        "flac": base64.b64encode(flac).decode(),
        "rate_hz": rate,
        "declared_hz": declared,
        "gain": gain,
        "cut_s": len(signal) / rate if len(signal) > most else None,
    }
