"""Runs ``audio-tfrecords`` for ``python -m beam_pipeline``."""

import os
import sys

# Python puts the current folder first, which may be a data set from the Internet.
if sys.path and os.path.abspath(sys.path[0]) == os.getcwd():
    package = os.path.dirname(os.path.abspath(__file__))
    if os.path.dirname(package) != os.getcwd():
        del sys.path[0]

from beam_pipeline.cli.main import command

if __name__ == "__main__":
    sys.exit(command())
