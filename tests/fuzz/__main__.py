"""Prints what becomes of mutated files: ``python -m tests.fuzz --cases 10000``.

A case is the same for the same seed and number, so a run can be split with ``--first``.
ffmpeg, if it is installed, decodes what was recorded. The exit status is 1 if a file
was recorded wrongly, or if a process crashed or hung.
"""

import argparse
import sys
from collections import Counter, defaultdict

from tests.fuzz.cases import Child, make_case
from tests.fuzz.oracle import judge

COLUMNS = (
    *("cases", "rejected", "broke", "right", "inside", "unknown"),
    *("differs", "error", "crash", "hang"),
)
BAD = ("differs", "error", "crash", "hang")


class Table:
    """Counts outcomes by kind of file."""

    def __init__(self):
        self._counts = defaultdict(Counter)

    def run(self, seed, numbers, *, verbose=False):
        """Runs cases and counts what became of them."""
        with Child() as child:
            for number in numbers:
                case = make_case(seed, number)
                outcome = child.run(case)
                verdict, about = outcome.end, outcome.reason
                if outcome.end == "complete":
                    verdict, about = judge(case, outcome)
                counts = self._counts[case.original.kind]
                counts.update(["cases", verdict])
                if verdict in BAD or verbose:
                    what = f"{case.original.kind}, {case.mutation}"
                    print(f"{number}: {what}: {verdict}: {about}", flush=True)

    def bad(self):
        """Returns how many cases ended as none may."""
        return sum(counts[end] for counts in self._counts.values() for end in BAD)

    def __str__(self):
        total = sum(self._counts.values(), Counter())
        rows = [*self._counts.items(), ("all", total)]
        lines = [f"{'':20}" + "".join(f"{name:>9}" for name in COLUMNS)]
        for kind, counts in rows:
            numbers = "".join(f"{counts[name]:9}" for name in COLUMNS)
            lines.append(f"{kind:20}{numbers}")
        return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    table = Table()
    numbers = range(args.first, args.first + args.cases)
    table.run(args.seed, numbers, verbose=args.verbose)
    print(table)
    return 1 if table.bad() else 0


if __name__ == "__main__":
    sys.exit(main())
