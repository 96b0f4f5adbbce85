"""What statistics cost beside the feature that they are of.

    python -m tests.benchmarks.statistics [--runs 20]

Times are of a block of 16 windows of 16000 samples, the least of some runs, each after
blocks that are not in the cache. Sizes are of the state, which lies in the receipt of
each shard: as JSON, after 200 blocks.
"""

import argparse
import json
import time

import numpy as np

from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.transforms.base import Identity
from beam_pipeline.transforms.mel import LogMel
from beam_pipeline.write.statistics import (
    DataStatistics,
    FeatureStatistics,
    count_levels,
)

RATE, FRAMES, WINDOWS, BLOCKS = 16000, 16000, 16, 200
LOG_MEL = LogMel(n_fft=1024, hop=256, n_mels=64)


def per_block(function, blocks, runs):
    """Microseconds of a call with each of some blocks in turn, the least of runs."""
    best = float("inf")
    for _ in range(runs):
        began = time.perf_counter()
        for block in blocks:
            function(block)
        best = min(best, time.perf_counter() - began)
    return 1e6 * best / len(blocks)


def spec_of(name, values, axes=()):
    return FeatureSpec(name, str(values.dtype), values.shape[1:], "raw", "", axes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    rng = np.random.default_rng(0)
    signals = [
        rng.normal(0, 0.1, (WINDOWS, FRAMES)).astype(np.float32) for _ in range(16)
    ]
    spectra = [LOG_MEL(block, sample_rate_hz=RATE) for block in signals]
    features = {
        "signal": (signals, ()),
        "signal, int16": ([Identity("int16")(block) for block in signals], ()),
        "log_mel": (spectra, tuple(LOG_MEL.axes(RATE, FRAMES))),
        "20 of its bands": (
            [np.ascontiguousarray(block[..., :20]) for block in spectra],
            tuple(LOG_MEL.axes(RATE, FRAMES)),
        ),
        "one of its bands": ([block[..., 0].copy() for block in spectra], ()),
        "one number": ([np.arange(WINDOWS) for _ in signals], ()),
    }
    whole = per_block(lambda block: LOG_MEL(block, sample_rate_hz=RATE), signals, runs)
    print(f"{'log_mel itself':36} {whole:7.0f} us a block")

    def report(name, microseconds, state=None):
        size = "" if state is None else f"{len(json.dumps(state)):8} B"
        share = 100 * microseconds / whole
        print(f"{name:36} {microseconds:7.1f} us {share:5.1f} % of log_mel {size}")

    report("silence and clipping", per_block(count_levels, signals, runs))
    for name, (blocks, axes) in features.items():
        statistics = FeatureStatistics.of(spec_of(name, blocks[0], axes))
        # Small blocks wait for each other: enough of them that all had their turn.
        repeated = blocks * max(1, 2**18 // (blocks[0].size * len(blocks)))
        taken = per_block(statistics.add, repeated, runs)
        fresh = FeatureStatistics.of(spec_of(name, blocks[0], axes))
        for k in range(BLOCKS):
            fresh.add(blocks[k % len(blocks)])
        report(f"feature {name}", taken, fresh.state())

    both = DataStatistics.of([spec_of("x", spectra[0], features["log_mel"][1])])
    pairs = list(zip(spectra, signals, strict=True))
    taken = per_block(lambda pair: both.add({"x": pair[0]}, pair[1]), pairs, runs)
    report("log_mel and its windows together", taken, both.state())
    state = json.dumps(both.state())
    merged = per_block(
        lambda text: both.merge(DataStatistics.from_state(json.loads(text))),
        [state] * 10,
        runs,
    )
    report("the same read and merged", merged)


if __name__ == "__main__":
    main()
