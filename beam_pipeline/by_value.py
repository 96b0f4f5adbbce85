"""Pickles that hold the code of the caller's script, for processes without it."""

from __future__ import annotations

from typing import Any


def by_value(value: Any) -> bytes:
    """Pickles a value, with the classes and functions of the caller's script in it."""
    from apache_beam.internal.cloudpickle import cloudpickle

    return bytes(cloudpickle.dumps(value))
