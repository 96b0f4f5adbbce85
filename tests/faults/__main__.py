"""Tries every fault several times, and prints a table; see the package."""

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.faults import machine, pairs  # noqa: F401 - they add cases
from tests.faults.cases import CASES
from tests.faults.world import CannotTry, World


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--times", type=int, default=10, help="tries of each fault")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first try")
    parser.add_argument("--only", default="", help="part of the names of the faults")
    args = parser.parse_args()
    wrong = 0
    print("| fault | tried | wrong | what happened | in tests/faults |")
    print("|---|---|---|---|---|")
    for title, fault in CASES.items():
        if args.only not in title and args.only not in fault.__name__:
            continue
        happened = Counter()
        failed = 0
        started = time.monotonic()
        for seed in range(args.seed, args.seed + args.times):
            root = Path(tempfile.mkdtemp(prefix="faults-"))
            try:
                happened[fault(World(root, seed))] += 1
            except CannotTry as error:
                happened[f"not tried: {error}"] += 1
            except Exception:
                failed += 1
                print(f"--- {title}, seed {seed}", file=sys.stderr)
                traceback.print_exc()
            finally:
                shutil.rmtree(root, ignore_errors=True)
        words = ", ".join(f"{n} {what}" for what, n in happened.most_common())
        place = f"`{fault.__module__.rpartition('.')[2]}.{fault.__name__}`"
        print(f"| {title} | {args.times} | {failed} | {words} | {place} |", flush=True)
        seconds = time.monotonic() - started
        print(f"{title}: {seconds / args.times:.1f} s each", file=sys.stderr)
        wrong += failed
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
