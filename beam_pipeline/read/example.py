"""One example: a dict that notebooks show and that JAX takes apart."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from beam_pipeline.dataset.metadata import Metadata


class Example(dict[str, Any]):
    """The features of an example by name: arrays, scalars and texts.

    It is an ordinary dict, also after pickling and copying. As the last value of a cell
    of a notebook, it is shown with a player, the waveform and the spectra.
    """

    __slots__ = ("_metadata",)

    _metadata: Metadata

    @classmethod
    def of(cls, metadata: Metadata) -> Example:
        """Returns an empty example of a data set."""
        if not _KNOWN and "jax" in sys.modules:
            _tell_jax()
        made = cls()
        made._metadata = metadata
        return made

    def _repr_html_(self) -> str:
        from beam_pipeline.read.example_view import view_example

        metadata: Metadata | None = getattr(self, "_metadata", None)
        if metadata is None:
            return view_example(self, {})
        return view_example(self, metadata.features, metadata.recipe)

    def __reduce__(self) -> tuple[Any, ...]:
        return Example, (dict(self),)


# "jax", once it knows that an example is a dict.
_KNOWN: set[str] = set()


def _tell_jax() -> None:
    """JAX, and Grain with it, takes a subclass of dict for a single value otherwise."""
    tree = getattr(sys.modules["jax"], "tree_util", None)
    if tree is None:  # another thread is importing it
        return
    _KNOWN.add("jax")
    tree.register_pytree_with_keys(
        Example,
        lambda example: (
            [(tree.DictKey(name), example[name]) for name in sorted(example)],
            tuple(sorted(example)),
        ),
        _dict_of,
        lambda example: (
            [example[name] for name in sorted(example)],
            tuple(sorted(example)),
        ),
    )


def _dict_of(names: Sequence[str], values: Any) -> dict[str, Any]:
    return dict(zip(names, values, strict=True))
