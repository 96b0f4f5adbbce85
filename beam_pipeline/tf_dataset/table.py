"""Columns of a data frame as arrays that a data set can hold."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from beam_pipeline.errors import OptionError

Columns = dict[str, npt.NDArray[Any]]


def columns_of(frame: pd.DataFrame) -> Columns:
    """Returns the columns of a frame as arrays of shape (rows, ...).

    Numbers and booleans keep their type. Text, categories and paths become text; other
    values, such as dates, become their text. Lists and arrays of one shape are stacked.
    NaN in a column of numbers stays.

    Raises
    ------
    OptionError
        If another value is missing, or the arrays of a column differ in shape.
    """
    return {str(name): _array(str(name), frame[name]) for name in frame.columns}


def _array(name: str, column: pd.Series) -> npt.NDArray[Any]:
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biufc":
        return np.asarray(column)
    for row, missing in enumerate(column.isna()):
        if missing:
            raise OptionError(
                "df",
                f"has no value in column {name} of row {row}; fill it, or leave the "
                "row out with df.dropna()",
            )
    values = column.tolist()
    if values and isinstance(values[0], np.ndarray | list | tuple):
        try:
            return np.stack([np.asarray(value) for value in values])
        except ValueError as error:
            raise OptionError(
                "df", f"has arrays of different shapes in column {name}"
            ) from error
    numeric = np.array(values)
    if numeric.dtype.kind in "biuf":
        return numeric
    # TensorFlow takes text as Python's bytes.
    return np.array([_text(value) for value in values], object)


def _text(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    text = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    return text.encode()


def add_targets(columns: Columns, targets: Any, label_colname: str = "class") -> None:
    """Adds ``target``, and ``num_classes`` where there are classes.

    ``targets``, or a column ``target``, comes first. Otherwise, the target is the index
    of the class in the sorted list of classes.

    Raises
    ------
    OptionError
        If there is not one target for each row, or there are neither targets nor
        classes.
    """
    rows = len(columns["filepath"]) if "filepath" in columns else None
    classes = columns.get(label_colname)
    names: list[Any] = []
    if classes is not None:
        names = sorted(set(classes.tolist()))
        columns.setdefault("num_classes", np.full(len(classes), len(names), np.int64))
    if targets is not None:
        values = np.asarray(targets)
        if rows is not None and values.shape[:1] != (rows,):
            raise OptionError(
                "targets",
                f"must have one value for each of the {rows} rows",
                f"shape {values.shape}",
            )
        columns["target"] = values
    elif "target" not in columns and classes is not None:
        number = {name: index for index, name in enumerate(names)}
        columns["target"] = np.array([number[name] for name in classes.tolist()])


def cast_targets(columns: Columns, dtype: str) -> None:
    """Casts whole targets to ``dtype``; numbers with fractions to float32 at least."""
    if "target" not in columns:
        return
    targets = columns["target"]
    if targets.dtype.kind not in "biuf":
        raise OptionError(
            "df", "must have numbers in column target", str(targets.flat[0])
        )
    wanted = np.dtype(dtype)
    if targets.dtype.kind == "f" and wanted.kind in "iu":
        wanted = np.dtype(np.float32)
    columns["target"] = targets.astype(wanted)
