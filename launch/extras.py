"""Prints what extras of setup.py install, one package a line.

python launch/extras.py torch grain
"""

import importlib.metadata
import sys


def main() -> None:
    """Prints the requirements, as pip takes them."""
    found: dict[str, list[str]] = {name: [] for name in sys.argv[1:]}
    for text in importlib.metadata.requires("audio-tfrecords") or ():
        requirement, _, marker = text.partition(";")
        extra = marker.partition("==")[2].strip(" \"'")
        if extra in found:
            found[extra].append(requirement.strip())
    for extra, packages in found.items():
        if not packages:
            raise SystemExit(
                f"The installed package has no extra {extra}: setup.py is newer. "
                "Delete .venv; the next command makes it again."
            )
        print(*packages, sep="\n")


if __name__ == "__main__":
    main()
