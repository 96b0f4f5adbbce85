"""Tables of Arrow as CSV, which has texts alone."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

_ROWS_AT_ONCE = 1 << 14


def table_as_csv(table: Any) -> Iterator[str]:
    """Yields a table as CSV, some lines at a time, without the last line break.

    Texts are in quotes, and nothing stands for null. Lists become JSON, and bytes
    Base64.
    """
    import pyarrow.csv

    for first in range(0, max(len(table), 1), _ROWS_AT_ONCE):
        lines = io.BytesIO()
        options = pyarrow.csv.WriteOptions(include_header=first == 0)
        some = with_texts(table.slice(first, _ROWS_AT_ONCE))
        pyarrow.csv.write_csv(some, lines, options)
        yield lines.getvalue().decode().removesuffix("\n")


def with_texts(table: Any) -> Any:
    """Returns a table with texts in place of what CSV cannot hold."""
    import pyarrow as pa

    for k, field in enumerate(table.schema):
        column = table.column(k)
        if pa.types.is_dictionary(field.type):
            texts = column.cast(field.type.value_type)
        elif pa.types.is_list(field.type) or pa.types.is_binary(field.type):
            texts = pa.array(map(_as_text, column.to_pylist()), pa.string())
        else:
            continue
        table = table.set_column(k, field.name, texts)
    return table


def _as_text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return _base64(value)
    if value is None:
        return None
    return json.dumps(value, ensure_ascii=False, default=_base64)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
