"""JSON of strangers: whatever is wrong with it is a ValueError."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes, **options: Any) -> Any:
    """Returns the value of a JSON text; takes the options of ``json.loads``.

    Raises
    ------
    ValueError
        If it is not JSON, is nested too deep, or has a number of thousands of digits.
    """
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
