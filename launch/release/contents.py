"""Compares a wheel and an sdist with the files of the repository.

    python -m launch.release.contents SOURCE WHEEL SDIST

The wheel holds the package, whole, and nothing else; the sdist also what builds it.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

PACKAGE = "beam_pipeline"
OF_WHEEL = {
    "METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE",
    "top_level.txt",
}  # fmt: skip
OF_SDIST = {
    "CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md",
    "pyproject.toml", "setup.cfg", "setup.py",
}  # fmt: skip


def package_files(source: Path) -> set[str]:
    """The files of the package, relative to the repository."""
    return {
        path.relative_to(source).as_posix()
        for path in (source / PACKAGE).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def wheel_files(wheel: Path) -> set[str]:
    """The files of a wheel; those of its ``dist-info`` without the folder's name."""
    with zipfile.ZipFile(wheel) as file:
        names = [name for name in file.namelist() if not name.endswith("/")]
    return {name.partition("/")[2] if ".dist-info/" in name else name for name in names}


def sdist_files(sdist: Path) -> set[str]:
    """The files of an sdist, without its folder and what setuptools notes in it."""
    with tarfile.open(sdist) as file:
        names = [member.name for member in file if member.isfile()]
    return {name.partition("/")[2] for name in names if ".egg-info/" not in name}


def differences(name: str, found: set[str], wanted: set[str]) -> list[str]:
    """What a file lacks, and what it should not have, a line for each."""
    lacks = [f"{name} lacks {path}" for path in sorted(wanted - found)]
    return lacks + [f"{name} has {path}" for path in sorted(found - wanted)]


def main(source: str, wheel: str, sdist: str) -> int:
    """Prints what differs; the exit status is 1 if anything does."""
    package = package_files(Path(source))
    bad = [
        *differences("the wheel", wheel_files(Path(wheel)), package | OF_WHEEL),
        *differences("the sdist", sdist_files(Path(sdist)), package | OF_SDIST),
    ]
    print(*bad, sep="\n", end="\n" if bad else "")
    if not bad:
        print(f"The wheel and the sdist hold the {len(package)} files of {PACKAGE}.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
