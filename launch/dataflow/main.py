"""The entry point of a Flex template: turns its parameters into flags of ``record``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from beam_pipeline.cli.main import main

METADATA = Path(__file__).with_name("metadata.json")

# Flags that may be repeated; one parameter holds all values.
REPEATED = ("input", "feature", "encoding", "skip_recorded")
SEPARATOR = ";"

# Parameters that are options of Beam; and options that submit.sh gives, too.
OF_BEAM = ("sdk_container_image", "disk_size_gb")
RECOMMENDED = (
    "--number_of_worker_harness_threads=2",
    "--no_save_main_session",
    "--experiments=disable_logging_submission_environment",
)


def to_command(arguments: Sequence[str]) -> list[str]:
    """Turns arguments of the template's launcher into those of ``audio-tfrecords``."""
    declared = json.loads(METADATA.read_text())["parameters"]
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for parameter in declared:
        if parameter["name"] not in OF_BEAM:
            parser.add_argument(f"--{parameter['name']}")
    given, beam_args = parser.parse_known_args(arguments)
    switches = {p["name"] for p in declared if p.get("paramType") == "BOOLEAN"}
    flags = []
    for name, value in vars(given).items():
        flag = "--" + name.replace("_", "-")
        if not value:
            continue  # a field that was left empty
        if name in switches:
            flags += [flag] if value == "true" else []
        else:
            values = value.split(SEPARATOR) if name in REPEATED else [value]
            flags += [f"{flag}={value.strip()}" for value in values]
    return ["record", *flags, "--", "--runner=DataflowRunner", *RECOMMENDED, *beam_args]


if __name__ == "__main__":
    sys.exit(main(to_command(sys.argv[1:])))
