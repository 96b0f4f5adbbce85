"""Prints what becomes of mutated files: ``python -m tests.fuzz --cases 10000``.

A case is the same for the same seed and number, so a run can be split with ``--first``.
ffmpeg, if it is installed, decodes what was recorded. The exit status is 1 if a file
was recorded wrongly, or if a process crashed or hung.
"""

import argparse
import sys
from collections import Counter

from tests.fuzz.cases import Child, make_case
from tests.fuzz.oracle import judge

BAD = ("differs", "error", "crash", "hang")


def run(seed, numbers):
    """Runs cases, prints the bad ones, and returns how many had each outcome."""
    counts = Counter()
    with Child() as child:
        for number in numbers:
            case = make_case(seed, number)
            outcome = child.run(case)
            verdict, about = outcome.end, outcome.reason
            if outcome.end == "complete":
                verdict, about = judge(case, outcome)
            counts[verdict] += 1
            if verdict in BAD:
                what = f"{case.original.kind}, {case.mutation}"
                print(f"{number}: {what}: {verdict}: {about}", flush=True)
    return counts


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    counts = run(args.seed, range(args.first, args.first + args.cases))
    print(*(f"{outcome} {count}" for outcome, count in counts.items()), sep=", ")
    return int(not counts.keys().isdisjoint(BAD))


if __name__ == "__main__":
    sys.exit(main())
