"""Scoring a long recording against recording it: time and memory of whole processes.

    python -m tests.benchmarks.scoring [--hours 24]

One process computes the log-mel spectra of all windows by `open_audio`, the other one
writes them by `record`, with one worker. Imports count.
"""

import argparse
import tempfile
import wave

import numpy as np

from tests.benchmarks.measuring import Row, Watch, measure, run_case

RATE = 16000
MODULE = "tests.benchmarks.scoring"
FEATURES = {"log_mel": "log_mel(n_fft=1024,hop=256,n_mels=64)"}


def write_recording(path, hours):
    """Write noise, of which each minute is the same."""
    rng = np.random.default_rng(0)
    minute = rng.integers(-9999, 9999, RATE * 60, dtype=np.int16).tobytes()
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        for _ in range(round(hours * 60)):
            file.writeframesraw(minute)


def run_record(output, *, recording, like):
    """Record the features of the recording."""
    with Watch() as watch:
        from beam_pipeline import record

        made = record(
            recording, f"{output}/records", recipe=like, label_from="none", workers=1
        )
    examples = sum(split.examples for split in made.splits.values())
    return watch.result(examples=examples)


def run_open_audio(output, *, recording, like):
    """Compute the features of the recording, batch by batch."""
    with Watch() as watch:
        from beam_pipeline import open_audio

        examples = 0
        for batch in open_audio(recording, like).batches(256):
            examples += len(batch["log_mel"])
    return watch.result(examples=examples)


def run_like(output, *, recording):
    """Record the data set that the others take their recipe from."""
    from beam_pipeline import record

    record(recording, f"{output}/like", win_seconds=1.0, features=FEATURES)
    return {}


CASES = {"open_audio": run_open_audio, "record": run_record, "like": run_like}


def main():
    """Print a row for each way."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}")
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        run_case(CASES, options.case)
        return
    with tempfile.TemporaryDirectory() as folder:
        short, night = f"{folder}/short.wav", f"{folder}/night.wav"
        write_recording(short, 1 / 60)
        write_recording(night, options.hours)
        measure(MODULE, Row("like", "like", {"recording": short}), folder)
        arguments = {"recording": night, "like": f"{folder}/like"}
        for case in ("open_audio", "record"):
            print(case, measure(MODULE, Row(case, case, arguments), folder), flush=True)


if __name__ == "__main__":
    main()
