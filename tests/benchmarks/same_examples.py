"""Whether two checkouts record the same examples, at the same positions of shards.

::

    AUDIO_CORPORA=... python -m tests.benchmarks.same_examples OLD_CHECKOUT
    python -m tests.benchmarks.same_examples OLD_CHECKOUT --only events --workers 2
    python -m tests.benchmarks.same_examples OLD_CHECKOUT --runner=FnApiRunner

Each recipe is recorded twice from a part of the Free Spoken Digit Dataset
(``AUDIO_CORPORA/fsdd``): by the old checkout in one process, and by this one with
``--workers`` processes or with the other options, which are Beam's. Shards are compared
by name, record by record; so are classes, counts, rejects and statistics. It prints a
line for each recipe; the exit status is 1 if one differs.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

NEW_CHECKOUT = Path(__file__).parents[2]
SOUNDS = 300
RATE_HZ = 8000
# Clips in the long recordings, and how many recordings there are.
CLIPS_OF_RECORDING, RECORDINGS = 40, 6
# Statistics may be summed in another order.
TOLERANCE = 1e-6
COMPARED_STATISTICS = ("count", "mean", "std", "min", "max")
DIFFERENCES_SHOWN = 5

LABELS = ["--label-from", r"(?P<class>\d)_(?P<speaker>[a-z]+)_\d+\.wav"]
# With this seed, the hash leaves no split empty.
SPLITS = ["--splits", "train=.6,eval=.2,test=.2", "--group-by", "speaker"]
SPLITS += ["--seed", "2"]
COPIES = ["--copies", "2", "--augment", "random_gain(low_db=-6)|noise()"]
SHORT = ["--win-seconds", "0.1", "--hop-seconds", "0.05", "--short-clips", "skip"]
LOG_MEL = "log_mel=log_mel(n_fft=256,hop=64,n_mels=20)"
MFCC = "mfcc=mfcc(n_fft=256,hop=64,n_mels=20,n_mfcc=12)"

# The input, relative to the folder of sounds, and the flags of `record`.
RECIPES: dict[str, tuple[str, list[str]]] = {
    "features and copies": (
        "digits",
        [*LABELS, *SPLITS, *SHORT, *COPIES, "--feature", LOG_MEL, "--feature", MFCC,
         "--feature", "signal=identity()", "--elements-per-file", "333"],
    ),
    "statistics and encodings": (
        "digits",
        [*LABELS, *SPLITS, *SHORT, "--feature", LOG_MEL, "--encoding",
         "log_mel=float16", "--feature", "ar=linear_prediction(order=8)", "--feature",
         "image=log_mel(n_fft=256,hop=64,n_mels=20)|as_image()", "--encoding",
         "image=png", "--feature", "level=rms(frame=256,hop=128)", "--feature",
         "spectrum=fft()", "--num-shards", "3"],
    ),
    "manifest of segments": (
        "segments.csv",
        ["--label-from", "class", "--split-column", "split", "--win-seconds", "0.5",
         "--hop-seconds", "0.2", "--tail", "overlap", "--feature", LOG_MEL,
         "--feature", "signal=identity(dtype='int16')", "--elements-per-file",
         "70", "--max-rejected", "9"],
    ),
    "groups, stratified": (
        "groups.csv",
        ["--label-from", "class", "--splits", "train=.7,test=.3", "--group-by",
         "speaker,day", "--stratify", *SHORT, "--shard-bytes", "200000", "--seed", "3"],
    ),
    "several labels": (
        "labels.csv",
        ["--label-from", "class", "--label-separator", "+", *SHORT, "--num-elems",
         "700", "--num-shards", "4"],
    ),
    "events": (
        "recordings",
        ["--events", "events.csv", "--event-targets", "multi_hot,class,mask:log_mel",
         "--no-event", "drop", "--win-seconds", "0.5", "--feature", LOG_MEL,
         "--elements-per-file", "64", "--label-from", "none"],
    ),
    "windows at events": (
        "recordings",
        ["--events", "events.csv", "--windows-at", "events", "--win-seconds", "0.25",
         "--event-targets", "class", "--label-from", "none", "--num-shards", "2"],
    ),
    "windows at sounds, resampled": (
        "recordings",
        ["--windows-at", "peaks(above_db=-40,min_gap_s=0.2)", "--win-seconds", "0.2",
         "--sample-rate", "16000", "--stream", "high_pass(cutoff_hz=50)",
         "--label-from", "none", "--elements-per-file", "50"],
    ),
    "mixed order": (
        "recordings",
        ["--order", "mixed", "--win-seconds", "0.1", "--copies", "1", "--augment",
         "random_gain(low_db=-6)", "--label-from", "none", "--feature", LOG_MEL,
         "--num-shards", "5", "--seed", "7"],
    ),
    "mixed order with losses": (
        "damaged",
        ["--order", "mixed", "--win-seconds", "0.25", "--max-rejected", "9",
         "--elements-per-file", "60", "--label-from", "none", "--keep",
         "energy(above_db=-30)"],
    ),
    "losses": (
        "damaged",
        ["--win-seconds", "0.25", "--max-rejected", "9", "--elements-per-file", "60",
         "--label-from", "none", "--order", "listed"],
    ),
    "selection and copies": (
        "digits",
        [*LABELS, *SPLITS, *SHORT, *COPIES, "--keep", "energy(above_db=-25)",
         "--elements-per-file", "250", "--member-bytes", "6000"],
    ),
    "listed order, some elements": (
        "digits",
        [*LABELS, *SHORT, "--order", "listed", "--num-elems", "1111",
         "--elements-per-file", "100"],
    ),
    "padded, no GZIP": (
        "digits",
        [*LABELS, "--win-seconds", "0.4", "--tail", "pad", "--mark-padding",
         "--compression", "none", "--feature", LOG_MEL, "--num-shards", "3"],
    ),
    "random starts": (
        "recordings",
        ["--win-seconds", "0.3", "--random-starts", "--max-windows", "25",
         "--label-from", "none", "--elements-per-file", "31"],
    ),
    "whole clips": (
        "digits",
        [*LABELS, *SPLITS, "--win-len", "clip", "--feature", LOG_MEL, "--num-shards",
         "2"],
    ),
    "splits by name": (
        "train=digits/0_*.wav test=digits/1_*.wav",
        [*LABELS, *SHORT, *COPIES, "--num-shards", "1"],
    ),
}  # fmt: skip


def main() -> int:
    """Compares the recipes that the command line names; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.same_examples")
    parser.add_argument("old", type=Path, help="a checkout")
    parser.add_argument("--only", action="append", choices=RECIPES, metavar="RECIPE")
    parser.add_argument("--workers", type=int, default=1)
    args, beam_args = parser.parse_known_args()
    new = [f"--workers={args.workers}"] if not beam_args else ["--", *beam_args]
    differ = False
    with tempfile.TemporaryDirectory() as folder:
        sounds = Path(folder, "sounds")
        write_sounds(sounds)
        for name in args.only or RECIPES:
            outputs = Path(folder, "old", name), Path(folder, "new", name)
            record(args.old, sounds, outputs[0], name, ["--workers=1"])
            record(NEW_CHECKOUT, sounds, outputs[1], name, new)
            found = list(differences(*outputs))
            differ |= bool(found)
            print(f"{name}: {'DIFFERS' if found else summary(outputs[1])}", flush=True)
            for line in found[:DIFFERENCES_SHOWN]:
                print(f"  {line}")
    return int(differ)


def write_sounds(folder: Path) -> None:
    """Writes digits, long recordings of them, damaged files, and their tables."""
    corpus = sorted(Path(os.environ["AUDIO_CORPORA"], "fsdd").glob("*.wav"))
    chosen = corpus[:: max(1, len(corpus) // SOUNDS)]
    for name in ("digits", "recordings", "damaged"):
        (folder / name).mkdir(parents=True)
    for path in chosen:
        (folder / "digits" / path.name).write_bytes(path.read_bytes())
    segments, events = [], []
    for k in range(RECORDINGS):
        parts, at = [], 0.0
        for path in chosen[k::RECORDINGS][:CLIPS_OF_RECORDING]:
            samples, _ = soundfile.read(path)
            digit, speaker, _ = path.stem.split("_")
            seconds = len(samples) / RATE_HZ
            events.append((f"{k}.wav", at, at + seconds, digit))
            where = (f"recordings/{k}.wav", round(at, 3), round(seconds + 1, 3))
            split = ("train", "train", "eval")[len(segments) % 3]
            segments.append((*where, digit, split, speaker, at / 7, len(segments)))
            parts += [samples, np.zeros(RATE_HZ // 2)]
            at += seconds + 0.5
        soundfile.write(
            folder / "recordings" / f"{k}.wav", np.concatenate(parts), RATE_HZ
        )
        write_damaged(folder / "damaged", k, np.concatenate(parts))
    columns = ["path", "offset_s", "duration_s"]
    columns += ["class", "split", "speaker", "gain", "number"]
    write_csv(folder / "segments.csv", columns, segments)
    write_csv(folder / "events.csv", ["file", "start_s", "end_s", "label"], events)
    groups, labels = [], []
    for number, path in enumerate(chosen):
        digit, speaker, _ = path.stem.split("_")
        groups.append((f"digits/{path.name}", digit, speaker, number % 7))
        parity = "odd" if int(digit) % 2 else "even"
        labels.append((f"digits/{path.name}", f"{digit}+{parity}"))
    write_csv(folder / "groups.csv", ["path", "class", "speaker", "day"], groups)
    write_csv(folder / "labels.csv", ["path", "class"], labels)


def write_damaged(folder: Path, k: int, samples: np.ndarray) -> None:
    """Writes a sound file; one of three is damaged, and one of three is cut off."""
    path = folder / f"{k}.flac"
    soundfile.write(path, samples, RATE_HZ)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    if k % 3 == 1:
        content[middle : middle + 3000] = bytes(3000)
    elif k % 3 == 2:
        path = folder / f"{k}.wav"
        (folder / f"{k}.flac").unlink()
        soundfile.write(path, samples, RATE_HZ)
        content = bytearray(path.read_bytes()[:-5000])
    path.write_bytes(content)


def write_csv(path: Path, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
    """Writes a table."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])


def record(
    checkout: Path, sounds: Path, output: Path, name: str, flags: list[str]
) -> None:
    """Records a recipe with the code of a checkout."""
    given, options = RECIPES[name]
    inputs = [part for each in given.split() for part in ("--input", each)]
    result = subprocess.run(
        [sys.executable, "-m", "beam_pipeline", "record", *inputs, "--output",
         str(output), *options, *flags],
        cwd=sounds,
        env={**os.environ, "PYTHONPATH": str(checkout), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    if result.returncode:
        sys.exit(f"{checkout} cannot record {name}:\n{result.stderr[-3000:]}")


def _counted(count: Any) -> Any:
    """Returns a count; of counts by reason, those that are not 0."""
    if count is None or isinstance(count, dict):
        return {reason: n for reason, n in (count or {}).items() if n}
    return count


def differences(old: Path, new: Path) -> Iterator[str]:
    """Yields a line for each difference between the examples of two data sets."""
    metadata = [
        json.loads((folder / "metadata.json").read_text()) for folder in (old, new)
    ]
    before, after = metadata
    if before["classes"] != after["classes"]:
        yield f"classes: {before['classes']} before, {after['classes']} now"
    for key in before["inputs"]:
        counts = [_counted(found["inputs"].get(key)) for found in metadata]
        if counts[0] != counts[1]:
            yield f"{key}: {counts[0]} before, {counts[1]} now"
    paths = [rejected_paths(folder) for folder in (old, new)]
    if paths[0] != paths[1]:
        yield f"rejected: {paths[0]} before, {paths[1]} now"
    for split in sorted({*before["splits"], *after["splits"]}):
        entries = [found["splits"].get(split, {}) for found in metadata]
        for key in ("examples", "left_out", "examples_per_class"):
            counts = [entry.get(key) for entry in entries]
            if counts[0] != counts[1]:
                yield f"{split}: {key}: {counts[0]} before, {counts[1]} now"
        yield from statistics_differences(split, *entries)
    shards = shards_of(old), shards_of(new)
    for name in sorted({*shards[0], *shards[1]}):
        if name not in shards[0] or name not in shards[1]:
            yield f"{name}: only {'before' if name in shards[0] else 'now'}"
            continue
        was, now = list(digests(old / name)), list(digests(new / name))
        if was != now:
            pairs = enumerate(zip(was, now, strict=False))
            shorter = min(len(was), len(now))
            first = next((place for place, (a, b) in pairs if a != b), shorter)
            moved = "the same records in another order, "
            yield (
                f"{name}: {moved if sorted(was) == sorted(now) else ''}{len(was)} "
                f"records before, {len(now)} now; the first difference is at {first}"
            )


def statistics_differences(split: str, before: Any, after: Any) -> Iterator[str]:
    """Yields a line for each number of a feature's statistics that differs."""
    was, now = (
        some.get("statistics", {}).get("features", {}) for some in (before, after)
    )
    if was.keys() != now.keys():
        yield f"{split}: statistics of {sorted(was)} before, of {sorted(now)} now"
        return
    for feature in was:
        for key in COMPARED_STATISTICS:
            a, b = was[feature].get(key), now[feature].get(key)
            scale = max(abs(a or 0), abs(b or 0), was[feature].get("std") or 0)
            if a != b and (
                a is None or b is None or not abs(a - b) <= TOLERANCE * scale
            ):
                yield f"{split}: {key} of {feature}: {a} before, {b} now"


def rejected_paths(folder: Path) -> list[str]:
    """Returns the files in the list of rejects, each as often as it is there."""
    lines = (folder / "rejected.jsonl").read_text().splitlines()
    return sorted(json.loads(line)["path"] for line in lines)


def shards_of(folder: Path) -> list[str]:
    """Returns the files of shards, relative to the folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.tfrecord*"))


def digests(path: Path) -> Iterator[str]:
    """Yields the SHA-256 of each record of a shard."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        while header := file.read(12):
            (length,) = struct.unpack("<Q", header[:8])
            content = file.read(length + 4)
            if len(content) != length + 4:
                raise ValueError(f"{path} ends within a record")
            yield hashlib.sha256(content).hexdigest()


def summary(folder: Path) -> str:
    """Returns what a data set holds that has no difference."""
    shards = shards_of(folder)
    records = [digest for name in shards for digest in digests(folder / name)]
    size = math.fsum((folder / name).stat().st_size for name in shards)
    return (
        f"the same {len(records)} examples in {len(shards)} shards, {size / 1e6:.1f} MB"
    )


if __name__ == "__main__":
    sys.exit(main())
