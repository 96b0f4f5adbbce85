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
READ = {
    "astunparse": "BSD-3-Clause AND PSF-2.0",
    "axe-playwright-python": "MIT",
    "namex": "Apache-2.0",
    "matplotlib": "LicenseRef-Matplotlib",
    "pyasn1-modules": "BSD-2-Clause",
    "python-dateutil": "Apache-2.0 OR BSD-3-Clause",
    "scipy": "BSD-3-Clause",
    "sqlparse": "BSD-3-Clause",
    "torchdata": "BSD-3-Clause",
    "uritemplate": "Apache-2.0 OR BSD-3-Clause",
}

# What metadata say instead of an identifier.
WORDS = {
    r"apache( software)?( license)?,?( version)? ?2(\.0)?|apache license|"
    r"apache software license": "Apache-2.0",
    r"mit( license)?": "MIT",
    r"bsd 3-clause( license)?|3-clause bsd license": "BSD-3-Clause",
    r"isc( license.*)?": "ISC",
    r"mozilla public license 2\.0.*": "MPL-2.0",
}

# The section is the last one of the page.
HEADING = "## Licences\n"

TEXT = """
audio-tfrecords itself is under Apache-2.0. The identifiers are those of SPDX, as
packages name them. A wheel may hold libraries under further licences, which its own
files name. `python launch/licences.py` makes this table from the newest
versions; it did on {day}.
"""

COLUMNS = ("licence", "always installed", "by an extra", "required by the first ones")


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


def table(packages: list[list[dict[str, Any]]]) -> str:
    """A row for each licence; ``packages`` has a list for each column after it."""
    found: dict[str, list[set[str]]] = {}
    for column, some in enumerate(packages):
        for one in some:
            row = found.setdefault(licence_of(one), [set() for _ in packages])
            row[column].add(canonicalize_name(one["name"]))
    rows = [
        (licence, *(", ".join(sorted(names)) for names in cells))
        for licence, cells in sorted(found.items())
    ]
    lines = [f"| {' | '.join(cells)} |\n" for cells in (COLUMNS, *rows)]
    lines.insert(1, f"|{'---|' * len(COLUMNS)}\n")
    return "".join(lines)


def section() -> str:
    """The text and the table below the heading."""
    direct = named(requirements_of("install_requires"))
    always, by_extras, required = [], [], []
    for one in metadata_of(requirements_of("install_requires")):
        is_direct = canonicalize_name(one["name"]) in direct
        (always if is_direct else required).append(one)
    for wanted in requirements_of("extras_require").values():
        by_extras += metadata_of(wanted, "--no-deps")
    text = TEXT.format(day=date.today().isoformat())
    return f"{text}\n{table([always, by_extras, required])}"


if __name__ == "__main__":
    before = PAGE.read_text().partition(HEADING)[0]
    PAGE.write_text(before + HEADING + section())
