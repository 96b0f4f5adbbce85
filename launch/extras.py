"""Prints what extras of setup.py install, one package a line.

python launch/extras.py torch grain
"""

import importlib.metadata
import sys


def main() -> None:
    """Prints the requirements, as pip takes them."""
    for text in importlib.metadata.requires("audio-tfrecords") or ():
        requirement, _, marker = text.partition(";")
        extra = marker.partition("==")[2].strip(" \"'")
        if extra in sys.argv[1:]:
            print(requirement.strip())


if __name__ == "__main__":
    main()
