"""Every transform against the libraries that people would take instead, on one core.

    python -m tests.benchmarks.transforms [NAME ...]

Each row is one transform of 64 windows of a second at 16 kHz, in blocks as the job has
them; the others get the same windows in the way that suits them best. They alternate
in one process, and the fastest of many runs counts. A ratio above 1 says how many times
as long the other takes.
"""

import argparse
import importlib
import pkgutil
import time

import numpy as np
import threadpoolctl

import tests.benchmarks.peers as peers
from beam_pipeline.transforms.base import apply_transform, each_step
from beam_pipeline.transforms.steps import parse_transform

RATE = 16000
WINDOWS = 64
BLOCK = 16
ROUNDS = 7
LEAST_S = 0.05


def find_cases():
    """The cases of all modules in ``peers``, by their order there."""
    cases = []
    for module in pkgutil.iter_modules(peers.__path__):
        cases += importlib.import_module(f"{peers.__name__}.{module.name}").CASES
    return cases


def sounds():
    """Tones with a glide and noise, so that nothing is degenerate."""
    rng = np.random.default_rng(0)
    t = np.arange(RATE) / RATE
    pitch = rng.uniform(80, 800, (WINDOWS, 1))
    tones = sum(np.sin(2 * np.pi * k * pitch * t) / k for k in range(1, 6))
    return (0.1 * tones + 0.01 * rng.standard_normal(tones.shape)).astype(np.float32)


def fastest(functions, windows):
    """By name, the least seconds that each needs for the windows; they alternate."""
    best = dict.fromkeys(functions, np.inf)
    for function in functions.values():
        function(windows)  # compiles, plans, imports
    for _ in range(ROUNDS):
        for name, function in functions.items():
            began, runs = time.perf_counter(), 0
            while time.perf_counter() - began < LEAST_S:
                at = time.perf_counter()
                function(windows)
                best[name] = min(best[name], time.perf_counter() - at)
                runs += 1
    return best


def apply_to_copies(transform, windows):
    """Applies a transform as to augmented copies, some with each of the first keys."""
    keys = np.arange(len(windows), dtype=np.uint64)
    for step, rate_hz in each_step(transform, RATE):
        windows = apply_transform(step, windows, rate_hz)
        if hasattr(step, "on_copies"):
            windows = step.on_copies(windows, keys, rate_hz)


def functions_of(case):
    transform = parse_transform(case.expression)

    def ours(windows):
        for first in range(0, len(windows), BLOCK):
            apply_to_copies(transform, windows[first : first + BLOCK])

    def whole(other):
        return lambda windows: other(windows, RATE)

    def in_a_loop(other):
        return lambda windows: [other(window, RATE) for window in windows]

    return {
        "ours": ours,
        **{name: whole(other) for name, other in case.others.items()},
        **{name: in_a_loop(other) for name, other in case.one_by_one.items()},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="only transforms that begin so")
    names = tuple(parser.parse_args().names) or ("",)
    windows = sounds()
    print("| transform | µs a window | others: times as long |\n|---|---|---|")
    for case in find_cases():
        if not case.expression.startswith(names):
            continue
        with threadpoolctl.threadpool_limits(1):
            best = fastest(functions_of(case), windows)
        ours = best.pop("ours")
        ratios = ", ".join(f"{name} {t / ours:.1f}" for name, t in best.items())
        print(f"| `{case.expression}` | {1e6 * ours / WINDOWS:.1f} | {ratios} |")


if __name__ == "__main__":
    main()
