"""Writes the licences of docs/evidence.md, from what the index says of each package.

    python launch/licences.py

pip chooses the newest versions for this machine without installing them, so a list made
on another day, or with another Python, may differ. A licence that no rule here knows is
an error: read it, and add it to ``READ``.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

from packaging.licenses import canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "evidence.md"

# Licences of packages whose metadata do not name one of SPDX. They were read.
READ = {"scipy": "BSD-3-Clause"}

# What metadata say instead of an identifier.
WORDS = {
    r"apache( software)?( license)?,?( version)? ?2(\.0)?|apache license|"
    r"apache software license": "Apache-2.0",
    r"mit( license)?": "MIT",
    r"bsd 3-clause( license)?|3-clause bsd license": "BSD-3-Clause",
}

# The section is the last one of the page.
HEADING = "## Licences\n"

TEXT = """
audio-tfrecords itself is under Apache-2.0. These packages are always installed. The
identifiers are those of SPDX. A wheel may hold libraries under further licences.
`python launch/licences.py` makes this table from the newest versions; it did on {day}.
"""

COLUMNS = ("licence", "always installed")


def requirements_of(keyword: str) -> Any:
    """A literal argument of ``setup`` in setup.py."""
    for node in ast.walk(ast.parse((ROOT / "setup.py").read_text())):
        if isinstance(node, ast.keyword) and node.arg == keyword:
            return ast.literal_eval(node.value)
    raise KeyError(keyword)


def named(requirements: Iterable[str]) -> set[str]:
    """The names of requirements, as an index spells them."""
    return {canonicalize_name(Requirement(text).name) for text in requirements}


def metadata_of(requirements: Iterable[str], *options: str) -> list[dict[str, Any]]:
    """What an index says of the packages that pip would install."""
    command = [
        *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"),
        *("--quiet", "--report", "-", *options, *sorted(requirements)),
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [package["metadata"] for package in json.loads(done.stdout)["install"]]


def licence_of(metadata: dict[str, Any]) -> str:
    """The licence as an expression of SPDX."""
    name = canonicalize_name(metadata["name"])
    said = [
        metadata.get("license_expression") or READ.get(name, ""),
        (metadata.get("license") or "").strip().split("\n")[0],
        *(
            text.rpartition(" :: ")[2]
            for text in metadata.get("classifier", ())
            if text.startswith("License :: ")
        ),
    ]
    for text in filter(None, said):
        for words, licence in WORDS.items():
            if re.fullmatch(words, text.strip().lower()):
                return licence
        try:
            return str(canonicalize_license_expression(text))
        except ValueError:
            continue
    raise ValueError(f"{name}: no rule knows the licence {said}; add it to READ.")


def table(packages: Iterable[dict[str, Any]]) -> str:
    """A row for each licence, with the packages that are under it."""
    found: dict[str, set[str]] = {}
    for one in packages:
        found.setdefault(licence_of(one), set()).add(canonicalize_name(one["name"]))
    rows = [(licence, ", ".join(sorted(names))) for licence, names in found.items()]
    lines = [f"| {' | '.join(cells)} |\n" for cells in (COLUMNS, *sorted(rows))]
    lines.insert(1, f"|{'---|' * len(COLUMNS)}\n")
    return "".join(lines)


def section() -> str:
    """The text and the table below the heading."""
    packages = metadata_of(requirements_of("install_requires"), "--no-deps")
    text = TEXT.format(day=date.today().isoformat())
    return f"{text}\n{table(packages)}"


if __name__ == "__main__":
    before = PAGE.read_text().partition(HEADING)[0]
    PAGE.write_text(before + HEADING + section())
