"""The class of TFRecorder's document is beside the scripts that run on engines."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "launch/engines/typed"))
