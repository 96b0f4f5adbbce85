"""One example: a dict that notebooks show, and that JAX and PyTorch know."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import InputError

# The module of PyTorch with its table of functions that make batches.
_COLLATE = "torch.utils.data._utils.collate"
# The modules that know what an example is.
_KNOWN: set[str] = set()

_HINT = (
    "records.to_torch(...) takes all features. Or choose others with "
    "open_records(features=...), or give the loader a collate_fn."
)

Collate = Callable[..., Any]


def collate_with(collate: Collate) -> Collate:
    """Returns the function for PyTorch's table of them, by the type of an example.

    Parameters
    ----------
    collate : function
        ``torch.utils.data._utils.collate.collate``.
    """

    def collate_examples(
        batch: Sequence[Mapping[str, Any]], *, collate_fn_map: Any = None
    ) -> dict[str, Any]:
        """Returns a dict of the batches of each feature.

        Raises
        ------
        InputError
            If some examples lack a feature, or PyTorch has no tensor of its values.
        """
        names = dict.fromkeys(name for example in batch for name in example)
        made = {}
        for name in names:
            values = [example[name] for example in batch if name in example]
            if len(values) < len(batch):
                raise InputError(
                    f"DataLoader cannot make a batch of the feature {name}, because "
                    f"{len(batch) - len(values)} of {len(batch)} examples lack it. "
                    f"{_HINT}"
                )
            try:
                made[name] = collate(values, collate_fn_map=collate_fn_map)
            except (TypeError, ValueError, RuntimeError) as error:
                raise InputError(
                    f"DataLoader cannot make a tensor of the feature {name}: {error}. "
                    f"{_HINT}"
                ) from error
        return made

    return collate_examples


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
        from beam_pipeline.read.show import view_example

        metadata: Metadata | None = getattr(self, "_metadata", None)
        if metadata is None:
            return view_example(self, {})
        return view_example(self, metadata.features, metadata.recipe)

    def __reduce__(self) -> tuple[Any, ...]:
        return Example, (dict(self),)


def _tell_torch() -> None:
    """Otherwise, PyTorch drops the features that the first of a batch lacks."""
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
        lambda names, values: dict(zip(names, values, strict=True)),
    )
