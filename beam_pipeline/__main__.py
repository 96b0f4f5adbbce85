"""``python -m beam_pipeline`` is ``audio-tfrecords``."""

import sys

from beam_pipeline.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
