"""How many copies of recordings an audit finds, how many others, and what it costs.

    python -m tests.benchmarks.copies CORPORA [--every 4] [--runs 3]

Recordings are the spoken digits in CORPORA/fsdd, and stretches of 5 seconds of those in
other folders. Each kind of copy is compared with all recordings. A pair is false if its
recordings are not copies of each other; other folders than fsdd hold copies themselves,
so false pairs are those of the digits alone. The cost is the CPU time of a whole
`record` of the digits in a process of its own, with sketches and hashes and without.
"""

import argparse
import io
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import soundfile
import soxr

from beam_pipeline.audio.sketch import SKETCH_SECONDS, sketch_audio
from beam_pipeline.read.audit import similar_sketches

FOLDERS = ("perch", "lhotse", "librosa_data")
SUFFIXES = (".wav", ".flac", ".ogg", ".mp3", ".opus")
STRETCH_SECONDS, MOST_STRETCHES = 5, 12
CUTS = (0.05, 0.1, 0.2, 0.25, 0.3, 0.5, 0.75, 1.0)
CODE = """
import resource, sys
from beam_pipeline import record
from beam_pipeline.write import shard
sounds, output, plain = sys.argv[1:]
if plain == "plain":
    shard.hash_windows = lambda *_: 0
    shard.sketch_audio = lambda *_: b""
record(sounds, output, win_seconds=0.25, tail="pad", label_from="name", workers=1)
both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(sum(used.ru_utime + used.ru_stime for used in both))
"""


def encoded(samples, rate, kind, subtype):
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    file.seek(0)
    return soundfile.read(file, dtype="float32")


def copies_of(samples, rate):
    """Yields the name, the samples and the rate of each copy."""
    yield "FLAC", *encoded(samples, rate, "FLAC", "PCM_16")
    yield "Vorbis", *encoded(samples, rate, "OGG", "VORBIS")
    mp3, mp3_rate = encoded(samples, rate, "MP3", "MPEG_LAYER_III")
    yield "MP3", mp3, mp3_rate
    for_opus = samples, rate
    if rate not in (8000, 12000, 16000, 24000, 48000):
        for_opus = soxr.resample(samples, rate, 48000), 48000
    yield "Opus", *encoded(*for_opus, "OGG", "OPUS")
    for to in (8000, 16000, 44100):
        if to != rate:
            yield f"at {to} Hz", soxr.resample(samples, rate, to), to
    noise = np.random.default_rng(0).normal(0, samples.std() * 10**-1.5, len(samples))
    yield "noise at 30 dB SNR", samples + noise.astype(np.float32), rate
    for seconds in CUTS:
        yield f"cut by {seconds:g} s", samples[int(seconds * rate) :], rate
    yield "MP3, cut by 0.1 s", mp3[int(0.1 * mp3_rate) :], mp3_rate


def sketch(samples, rate):
    return sketch_audio(samples[: int(SKETCH_SECONDS * rate)], rate)


def sketches_of(sound):
    """The sketch of a recording, and those of its copies by kind."""
    samples, rate = sound
    kinds = {name: sketch(*copy) for name, *copy in copies_of(samples, rate)}
    return sketch(samples, rate), kinds


def digits(corpora):
    for path in sorted(corpora.glob("fsdd/*.wav")):
        yield soundfile.read(path, dtype="float32")


def stretches(corpora):
    for path in sorted(
        path for name in FOLDERS for path in corpora.rglob(f"{name}/**/*")
    ):
        if path.suffix not in SUFFIXES:
            continue
        try:
            samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
        except soundfile.LibsndfileError:  # damaged on purpose
            continue
        size = STRETCH_SECONDS * rate
        for k in range(min(MOST_STRETCHES, len(samples) // size)):
            yield samples[k * size : (k + 1) * size].mean(axis=1), rate


def found_of(originals, copies):
    """How many of `copies`, by number of the original, are in one group with it."""
    groups, _ = similar_sketches([*originals, *copies.values()])
    return sum(groups[at] == groups[k] for k, at in enumerate(copies, len(originals)))


def print_found(title, sounds, every):
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(sketches_of, sounds, chunksize=16))
    originals = [original for original, _ in made]
    groups, complete = similar_sketches(originals)
    sizes = np.unique(groups, return_counts=True)[1]
    pairs = int((sizes * (sizes - 1) // 2).sum())
    print(f"{title}: {len(made)}; {pairs} pairs among them; complete: {complete}")
    for kind in dict.fromkeys(name for _, kinds in made for name in kinds):
        copies = {k: kinds[kind] for k, (_, kinds) in enumerate(made) if kind in kinds}
        copies = {k: copies[k] for k in list(copies)[::every]}
        share = found_of(originals, copies) / len(copies)
        print(f"  {kind}: {share:.3f} of {len(copies)}")


def cpu_seconds(sounds, how):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", CODE, str(sounds), f"{folder}/out", how],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    return float(done.stdout.split()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--every", type=int, default=1, help="take each n-th copy")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    print_found("digits", digits(args.corpora), args.every)
    print_found("stretches", stretches(args.corpora), args.every)
    ratios = []
    for _ in range(args.runs):
        plain, whole = (
            cpu_seconds(args.corpora / "fsdd", how) for how in ("plain", "")
        )
        ratios.append(whole / plain)
        print(f"CPU time: {whole:.2f} s, without sketches and hashes {plain:.2f} s")
    if ratios:
        print(f"median {100 * (statistics.median(ratios) - 1):.1f} % more")


if __name__ == "__main__":
    main()
