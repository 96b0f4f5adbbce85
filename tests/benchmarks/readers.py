"""Reading examples with ours and with other libraries, side by side.

    python -m tests.benchmarks readers [--runs 3] [--data DIR] [--only sequence,random]
    bash tests/benchmarks/readers.sh [the same]      with the other libraries installed

3600 examples of a second at 16 kHz: as float32 samples (64 KB) and as log-mel spectra
(15 KB), written by each library in its own form; see `reader_forms`. How they are read
says `reader_ways`. The group *opening* opens a data set that says it has a million and
ten million examples, and *writing* records the examples, with `--before DIR` also with
the checkout of an earlier version in that folder.

Every measurement is a fresh process. Outside the measured time, it reads all examples
and compares a checksum of the arrays and numbers with that of what was written. Within
it, a value of every page of the arrays is read, so that mapped files count as read.
Warm rows read for two seconds or an epoch, cold rows one epoch. Examples a CPU second
count all processes and threads; they suffer less than the clock if others use the
machine.

Warm: the files were read before. Cold: just before the measured epoch, the process
tells the kernel to drop the pages of all files (`posix_fadvise`, which needs no root);
a disk or a hypervisor may have caches of its own.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.measuring import (
    DATA,
    ROOT,
    Row,
    measure,
    median_of,
    run_case,
    run_module,
)
from tests.benchmarks.reader_cases import CASES
from tests.benchmarks.reader_forms import COUNT, PEERS, SHARDS, TRANSFORMS

# This process imports nothing big: on Linux a child's peak memory starts at its own.
MODULE = "tests.benchmarks.readers"
CACHES = "warm", "cold"


# The groups: rows that are compared.


def sequence_rows():
    """All examples in the order of the disk, in batches of 64."""
    hand = ("parse_example", "parse_single_example", "interleave", "interleave_parsed")
    return [
        way("replay", "ours_replay", "members", reference=True),
        way("replay, one member a shard", "ours_replay", "whole"),
        *(
            way(
                f"tf.data by hand, {variant}",
                "hand_tf_data",
                "members",
                variant=variant,
            )
            for variant in hand
        ),
        way("open_records, batches", "ours_batches", "members"),
        way("open_records, batches, without GZIP", "ours_batches", "plain"),
        way("datasets, batches", "hugging_face", "datasets", how="batches"),
    ]


def shuffled_rows():
    """All examples in a random order, in batches of 64."""
    anywhere = {"shuffle": "global"}
    return [
        way("replay in sequence", "ours_replay", "members", reference=True),
        way("open_records, shuffled", "ours_batches", "members", **anywhere),
        way(
            "open_records, shuffled, without GZIP", "ours_batches", "plain", **anywhere
        ),
        way("datasets, shuffled", "hugging_face", "datasets", how="shuffled"),
    ]


def random_rows():
    """Examples at random, one by one, in one thread."""
    zstd, plain = "arrayrecord-zstd", "arrayrecord-plain"
    pickled = "arrayrecord-pickle"
    return [
        way("records[i]", "ours_one_by_one", "members"),
        way("records[i], without GZIP", "ours_one_by_one", "plain"),
        way("Grain on records", "ours_in_grain", "members"),
        way(
            "Grain, ArrayRecord (zstd), bytes",
            "array_record",
            zstd,
            reference=True,
            parse="none",
        ),
        way(
            "Grain, ArrayRecord (zstd), dicts", "array_record", pickled, parse="pickle"
        ),
        way(
            "Grain, ArrayRecord (zstd), Example", "array_record", zstd, parse="example"
        ),
        way("Grain, ArrayRecord, bytes", "array_record", plain, parse="none"),
        way("Grain, ArrayRecord, Example", "array_record", plain, parse="example"),
        way("datasets", "hugging_face", "datasets", how="one"),
    ]


def loader_rows(shuffle=False):
    """PyTorch's DataLoader, two workers, batches of 64."""
    ours, datasets = "ours_loader", "hugging_face_loader"
    web, mosaic = ("web_dataset", "webdataset"), ("mosaic_streaming", "mds")
    return [
        way("DataLoader(records)", ours, "members", shuffle=shuffle),
        way("DataLoader(records), without GZIP", ours, "plain", shuffle=shuffle),
        way("webdataset", *web, reference=True, shuffle=shuffle),
        way("MosaicML streaming", *mosaic, reference=True, shuffle=shuffle),
        way("datasets", datasets, "datasets", shuffle=shuffle),
    ]


def loader_shuffled_rows():
    """The same, shuffled: ours and datasets globally, the others by their buffers."""
    return loader_rows(shuffle=True)


def way(name, reader, form, reference=False, **keywords):
    """Return a row; its folder, cache and checksum are added later."""
    arguments = {"reader": reader, "form": form, **keywords}
    return Row(name, "read", arguments, reference=reference)


READING = {
    "sequence": sequence_rows,
    "shuffled": shuffled_rows,
    "random": random_rows,
    "loader": loader_rows,
    "loader-shuffled": loader_shuffled_rows,
}
GROUPS = (*READING, "opening", "writing")


def opening_rows(folder):
    """Opening a data set of many examples."""
    source = f"{folder}/members"
    return [
        Row(f"open_records, {count:,}", "open", {"source": source, "count": count})
        for count in (10**6, 10**7)
    ]


def writing_rows(corpus, feature, before):
    """Recording all examples with one worker, now and before."""
    arguments = {
        "corpus": corpus,
        "num_shards": SHARDS,
        "workers": 1,
        "features": {feature: TRANSFORMS[feature]},
    }
    plain = {**arguments, "compression": "none"}
    rows = [Row("record", "ours", arguments), Row("without GZIP", "ours", plain)]
    if before is not None:
        earlier = {**arguments, "root": str(Path(before).absolute())}
        rows.append(Row("record, earlier version", "ours", earlier, reference=True))
    return rows


class Bench:
    """Where the forms are, and how a row is measured with them."""

    def __init__(self, data, before):
        self.data = Path(data).absolute()
        self.data.mkdir(parents=True, exist_ok=True)
        self.before = before
        self.forms, self.sums = {}, {}

    def prepare(self, feature):
        """Make the forms of a feature that are not there yet."""
        if feature in self.forms:
            return
        name = "tests.benchmarks.reader_forms"
        done = run_module(name, "--data", self.data, "--feature", feature)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        self.forms[feature] = json.loads(done.stdout.strip().splitlines()[-1])
        folder = {"folder": self.forms[feature]["folder"]}
        self.sums[feature] = measure(MODULE, Row("", "checksum", folder), "")

    def rows(self, group, feature):
        """Return the rows of a group."""
        if group == "opening":
            return opening_rows(self.forms[feature]["folder"])
        if group == "writing":
            return writing_rows(self.forms[feature]["corpus"], feature, self.before)
        return READING[group]()

    def measure(self, row, feature, cache):
        """Return the result of a row, or why there is none."""
        size = self.sums[feature]["bytes"]
        if row.case == "read":
            return self._read(row, feature, cache, size)
        arguments = dict(row.arguments)
        root = arguments.pop("root", ROOT)
        module = MODULE if row.case == "open" else "tests.benchmarks"
        with tempfile.TemporaryDirectory(dir=self.data) as output:
            result = measure(module, Row(row.name, row.case, arguments), output, root)
        if row.case == "open" or "error" in result:
            return result
        rate = COUNT / result["seconds"]
        return {
            **result,
            "rate": rate,
            "mb_s": rate * size / 1e6,
            "per_cpu_s": COUNT / result["cpu_s"],
        }

    def _read(self, row, feature, cache, size):
        made = self.forms[feature]
        disk = made["forms"][row.arguments["form"]]
        if isinstance(disk, str):
            return {"error": disk}
        arguments = {
            **row.arguments,
            "folder": made["folder"],
            "cache": cache,
            "expected": self.sums[feature]["sum"],
            "size": size,
        }
        result = measure(MODULE, Row(row.name, row.case, arguments), "")
        return result if "error" in result else {**result, "output_mb": disk / 1e6}


COLUMNS = (
    "group", "feature", "cache", "what", "s", "examples/s", "MB/s", "ratio",
    "a CPU second", "ratio", "peak MB", "of it imports", "MB on disk",
)  # fmt: skip
FOOT = """
Medians. Ratios are those of examples a second, and of examples a CPU second, to the
best reference of the group: `replay`, ArrayRecord (zstd) without parsing, webdataset or
MosaicML streaming, the earlier version."""


def table(labels, rows, results):
    """Return the Markdown lines of a group."""
    pairs = zip(rows, results, strict=True)
    references = [found for row, found in pairs if row.reference and "rate" in found]
    lines = []
    for row, result in zip(rows, results, strict=True):
        cells = [*labels, row.name]
        if "error" in result:
            cells += [result["error"], *[""] * (len(COLUMNS) - 5)]
        else:
            cells += [f"{result['seconds']:.2f}", number(result, "rate")]
            cells += [number(result, "mb_s"), ratio(result, references, "rate")]
            cells += [number(result, "per_cpu_s")]
            cells += [ratio(result, references, "per_cpu_s")]
            cells += [number(result, k) for k in ("peak_mb", "imports_mb", "output_mb")]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def number(result, key):
    """Return a whole number of a result, if it has one."""
    return f"{result[key]:.0f}" if key in result else ""


def ratio(result, references, key):
    """Return a number of a result relative to that of the best reference."""
    if not references or key not in result:
        return ""
    return f"{result[key] / max(found[key] for found in references):.2f}"


def main(argv=None):
    """Run the wanted groups and print one table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks readers", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--data", default=DATA, help="where inputs are kept")
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, by comma")
    parser.add_argument("--features", default=",".join(TRANSFORMS), help="by comma")
    parser.add_argument("--cache", default=",".join(CACHES), help="by comma")
    parser.add_argument("--rows", default="", help="only rows with this in their name")
    parser.add_argument("--runs", type=int, default=3, help="of each row")
    parser.add_argument("--before", help="a checkout of an earlier version")
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.case:
        run_case(CASES, options.case, ("beam_pipeline", *PEERS))
        return
    if options.runs < 1:
        parser.error(f"--runs must be at least 1, got {options.runs}")
    groups = words_of(parser, options, "only", GROUPS)
    features = words_of(parser, options, "features", TRANSFORMS)
    caches = words_of(parser, options, "cache", CACHES)
    bench = Bench(options.data, options.before)
    lines = []
    for group in groups:
        for feature in features[:1] if group == "opening" else features:
            bench.prepare(feature)
            rows = [r for r in bench.rows(group, feature) if options.rows in r.name]
            for cache in caches if group in READING else ("",):
                labels = group, feature, cache
                lines += table(
                    labels, rows, run_rows(bench, labels, rows, options.runs)
                )
    print("| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|", sep="\n")
    print(*lines, FOOT, sep="\n")


def words_of(parser, options, name, known):
    """Return the words of an option, which must be known."""
    words = getattr(options, name).split(",")
    for word in words:
        if word not in known:
            parser.error(f"--{name} must be of {', '.join(known)}, got {word!r}")
    return words


def run_rows(bench, labels, rows, runs):
    """Return the medians of rows that alternate, in reverse in every second run."""
    _, feature, cache = labels
    results = [[] for _ in rows]
    for run in range(runs):
        pairs = list(zip(rows, results, strict=True))
        for row, so_far in pairs if run % 2 == 0 else reversed(pairs):
            so_far.append(bench.measure(row, feature, cache))
            line = " | ".join((*labels, row.name, json.dumps(so_far[-1])))
            print(line, file=sys.stderr, flush=True)
    return [median_of(several) for several in results]


if __name__ == "__main__":
    main()
