"""One example: a dict that notebooks show, and that JAX and PyTorch know."""

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
        if "jax" not in _KNOWN and "jax" in sys.modules:
            _tell_jax()
        if _COLLATE not in _KNOWN and _COLLATE in sys.modules:
            _tell_torch()
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


# The module of PyTorch with its table of functions that make batches.
_COLLATE = "torch.utils.data._utils.collate"
# The modules that know what an example is.
_KNOWN: set[str] = set()


def _tell_torch() -> None:
    """Otherwise, PyTorch drops the features that the first of a batch lacks."""
    from beam_pipeline.read.torch_collate import collate_with

    module = sys.modules[_COLLATE]
    table = getattr(module, "default_collate_fn_map", None)
    if table is None:  # another thread is importing it
        return
    table[Example] = collate_with(module.collate)
    _KNOWN.add(_COLLATE)


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
