"""A mark for tests of what is promised and not yet so."""

import pytest


def bug(what):
    """The test fails today; once the package is mended, this mark makes it fail."""
    return pytest.mark.xfail(strict=True, reason=f"BUG: {what}")
