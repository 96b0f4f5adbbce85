"""The folders that the paths of a data set's clips are relative to.

A data set does not know where its inputs are: it may be published, and the same sounds
in another folder give the same bytes. So the caller names them, as for ``record``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_pipeline.errors import InputError
from beam_pipeline.inputs.sources import resolve_inputs
from beam_pipeline.storage import files

Given = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def input_roots(input: Given, table: Any) -> list[str]:
    """Returns the root of each input of a data set.

    Parameters
    ----------
    table : pyarrow.Table
        With the columns ``path`` and ``input``.

    Raises
    ------
    InputError
        If there are more or fewer inputs than the data set has, or the first clip of
        one is not there.
    """
    given = [input] if isinstance(input, str | os.PathLike) else list(input)
    roots = [
        entry.root for entry in resolve_inputs([os.fspath(each) for each in given])
    ]
    numbers = table["input"].to_numpy()
    several = int(numbers.max(initial=0)) + 1
    if several > len(roots):
        raise InputError(
            f"The clips are from {several} inputs, but `input` names {len(roots)}. "
            "Give the same as for `record`, in the same order."
        )
    for number, root in enumerate(roots[:several]):
        rows = np.flatnonzero(numbers == number)
        if not len(rows):
            continue
        path = files.join(root, table["path"][int(rows[0])].as_py())
        if not files.exists(path):
            raise InputError(
                f"{path} does not exist, but a clip of the data set has this name. "
                "Give as `input` what the data set was recorded from."
            )
    return roots
