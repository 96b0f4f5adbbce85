"""Reading from an object store, against Beam's own file system for it.

    python -m tests.benchmarks.stores [--delay 0.03] [--runs 3]

The store is a server on loopback behind a proxy that delays each answer as a network
would, and counts the bytes. What is compared is samples in memory: ten seconds from the
middle of a file of an hour, and all of 200 clips of a second.
"""

import argparse
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile

from beam_pipeline.audio.clip_reader import ClipReader, probe_audio
from beam_pipeline.storage import files, object_store
from tests import loopback

RATE = 16000
HOUR, FIRST, LAST = 3600, 1800, 1810
CLIPS = 200


def upload_corpus(folder):
    """Uploads a long file and many short ones."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as local:
        path = Path(local, "long.wav")
        second = rng.integers(-999, 999, RATE, dtype=np.int16)
        with soundfile.SoundFile(path, "w", RATE, 1, "PCM_16") as file:
            for _ in range(HOUR):
                file.write(second)
        object_store.upload(str(path), f"{folder}/long.wav")
        for i in range(CLIPS):
            path = Path(local, f"{i:03d}.wav")
            noise = rng.integers(-999, 999, RATE, dtype=np.int16)
            soundfile.write(path, noise, RATE)
            object_store.upload(str(path), f"{folder}/clips/{path.name}")


def stretch_by_beam(folder):
    from apache_beam.io.filesystems import FileSystems

    with (
        FileSystems.open(f"{folder}/long.wav") as file,
        soundfile.SoundFile(file) as sound,
    ):
        sound.seek(RATE * FIRST)
        return sound.read(RATE * (LAST - FIRST), dtype="float32")


def stretch_by_ours(folder):
    source = files.begin_read(f"{folder}/long.wav", share=LAST / HOUR)
    info = probe_audio(source, name="long.wav")
    with ClipReader(source, info, name="long.wav") as clip:
        return clip.read(RATE * FIRST, RATE * LAST)


def clips_by_beam(folder):
    from apache_beam.io.filesystems import FileSystems

    samples = []
    for i in range(CLIPS):
        with FileSystems.open(f"{folder}/clips/{i:03d}.wav") as file:
            samples.append(soundfile.read(file, dtype="float32")[0])
    return np.concatenate(samples)


def clips_by_ours(folder):
    from beam_pipeline.examples.features import Corpus, ExampleFormat
    from beam_pipeline.inputs.listing import Listing
    from beam_pipeline.inputs.sources import resolve_inputs
    from beam_pipeline.pipeline.planner import REMOTE_PROBE_THREADS
    from beam_pipeline.planning.clips import Clip
    from beam_pipeline.planning.prober import Prober
    from beam_pipeline.planning.shards import Segment, Shard, ShardWork, make_task
    from beam_pipeline.recipe.recipe import Recipe
    from beam_pipeline.write import shard

    recipe = Recipe(win_len=RATE)
    inputs = tuple(resolve_inputs([f"{folder}/clips"]))
    with ThreadPoolExecutor(REMOTE_PROBE_THREADS) as pool:
        clips = list(
            pool.map(Prober(inputs, recipe).probe, Listing(inputs, recipe).rows())
        )
    assert all(isinstance(clip, Clip) for clip in clips)
    example_format = ExampleFormat.of(Corpus((), {RATE: 1}, {1: 1}), recipe)
    segments = [Segment(clip, 0, 1, at) for at, clip in enumerate(clips)]
    task = make_task(Shard("s", "records", 0, CLIPS), segments, "")
    work = ShardWork(*task, example_format)
    found = [block.frames for block in shard.decode_audio(work, inputs, recipe)]
    return np.concatenate(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--delay", type=float, default=0.03)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    ways = [stretch_by_beam, stretch_by_ours, clips_by_beam, clips_by_ours]
    seconds = {way: [] for way in ways}
    costs, wanted = {}, {}
    with (
        pytest.MonkeyPatch.context() as patch,
        loopback.store_server() as port,
        loopback.proxy_to(port) as proxy,
    ):
        loopback.point_at(proxy.port, patch)
        loopback.put(port, "/bench")
        from apache_beam.io.filesystems import FileSystems
        from apache_beam.options.pipeline_options import PipelineOptions

        FileSystems.set_options(PipelineOptions([]))
        upload_corpus("s3://bench/corpus")
        proxy.delay_s = args.delay
        for _ in range(args.runs):
            for way in ways:
                proxy.reset()
                started = time.perf_counter()
                samples = way("s3://bench/corpus")
                seconds[way].append(time.perf_counter() - started)
                costs[way] = len(proxy.requests), proxy.bytes_sent / 1e6
                task = way.__name__.split("_")[0]
                np.testing.assert_array_equal(samples, wanted.setdefault(task, samples))
    print(f"| read | by | seconds | requests | MB |\n{'|---' * 5}|")
    for way in ways:
        task, _, who = way.__name__.split("_")
        requests, mb = costs[way]
        median = statistics.median(seconds[way])
        print(f"| {task} | {who} | {median:.2f} | {requests} | {mb:.2f} |")


if __name__ == "__main__":
    main()
