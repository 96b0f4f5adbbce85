"""What several features from one decode cost, and what their statistics do.

    python -m tests.benchmarks.together [--files 60] [--runs 3]

Jobs alternate, each in a fresh process with one writer; the least CPU time counts.
"""

import argparse
import json
import subprocess
import sys
import tempfile

from tests.benchmarks.corpus import DATA, make_corpus

FEATURES = {
    "log_mel": "log_mel(n_fft=1024,hop=256,n_mels=64)",
    "mfcc": "mfcc(n_mfcc=20)",
    "centroid": "spectral_centroid()",
}
CODE = """
import resource, sys, json
import apache_beam
from beam_pipeline import record
from beam_pipeline.run import local
from beam_pipeline.write import statistics
corpus, output, features, plain = json.loads(sys.argv[1])
if plain:
    statistics.DataStatistics.add = lambda self, values, windows: None
def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
began = cpu()
record(corpus, output, win_len=16000, features=features, workers=1)
print(cpu() - began)
"""


def seconds_of(corpus, features, plain=False):
    with tempfile.TemporaryDirectory() as output:
        arguments = json.dumps([str(corpus), f"{output}/out", features, plain])
        done = subprocess.run(
            [sys.executable, "-c", CODE, arguments],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    return float(done.stdout.split()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=60)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    jobs = {
        **{name: ({name: call}, False) for name, call in FEATURES.items()},
        "all three": (FEATURES, False),
        "log_mel, no statistics": ({"log_mel": FEATURES["log_mel"]}, True),
    }
    corpus = make_corpus(DATA, files=args.files)
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(args.runs):
        for name, (features, plain) in jobs.items():
            best[name] = min(best[name], seconds_of(corpus, features, plain))
    for name, seconds in best.items():
        print(f"{name:24} {seconds:6.2f} CPU s")
    alone = sum(best[name] for name in FEATURES)
    print(f"all three / sum of each alone: {best['all three'] / alone:.2f}")
    without = best["log_mel, no statistics"]
    print(f"statistics: {100 * (best['log_mel'] / without - 1):.0f} % of a log-mel job")


if __name__ == "__main__":
    main()
