"""Runs ``audio-tfrecords`` for ``python -m beam_pipeline``."""

import sys

from beam_pipeline.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
