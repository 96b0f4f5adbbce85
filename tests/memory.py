"""The largest memory of this process, on Linux."""

import re
from pathlib import Path

import pytest


def forget_peak_memory():
    """Starts the measurement of the peak anew."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("this system does not forget the peak of a process's memory")


def peak_memory_mib():
    """Returns the peak since then, in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) / 1024
