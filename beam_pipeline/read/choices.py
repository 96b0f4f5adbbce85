"""What of an example a reader reads, and checks of a reader's arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import InputError, OptionError, did_you_mean
from beam_pipeline.examples.spec import (
    ARRAYS,
    BYTES,
    INT8,
    LISTS,
    FeatureSpec,
    numpy_dtype,
)
from beam_pipeline.examples.structure import (
    Leaf,
    Structure,
    component_names,
    leaves,
    needed_features,
)


def check_values(
    batch_size: int | None,
    drop_remainder: bool,
    shuffle: bool | int,
    repeat: bool | int,
    shard: tuple[int, int] | None,
    normalize: bool | Sequence[str],
) -> None:
    """Raises :class:`OptionError` if an argument has a wrong value."""
    if batch_size is not None:
        check_number("batch_size", batch_size, 1)
    if not isinstance(drop_remainder, bool):
        raise OptionError("drop_remainder", "must be True or False", drop_remainder)
    if drop_remainder and batch_size is None:
        raise OptionError("drop_remainder", "needs `batch_size`", drop_remainder)
    if not (isinstance(shuffle, bool) or _is_size(shuffle, 0)):
        raise OptionError(
            "shuffle",
            "must be True, False or a buffer size; for a global order, use "
            "`open_records(...).batches(..., shuffle='global').to_tf()`",
            shuffle,
        )
    if not (isinstance(repeat, bool) or _is_size(repeat, 1)):
        raise OptionError("repeat", "must be True, False or a number of passes", repeat)
    if shard is not None:
        check_shard("shard", shard)
    if not isinstance(normalize, bool | Sequence):
        raise OptionError(
            "normalize", "must be True, False or names of features", normalize
        )


def check_shard(name: str, shard: Any) -> None:
    """Raises :class:`OptionError` unless it is ``(index, count)`` of a share."""
    is_pair = isinstance(shard, Sequence) and len(shard) == 2
    if not (is_pair and _is_size(shard[0], 0) and _is_size(shard[1], shard[0] + 1)):
        raise OptionError(name, "must be (index, count) with 0 <= index < count", shard)


def check_number(name: str, value: Any, least: int | None = 0) -> int:
    """Returns an integer, or raises :class:`OptionError`: no integer, or too small."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise OptionError(name, "must be a whole number", value)
    if least is not None and int(value) < least:
        raise OptionError(name, f"must be at least {least}", value)
    return int(value)


def _is_size(value: Any, least: int) -> bool:
    is_number = isinstance(value, Integral) and not isinstance(value, bool)
    return is_number and bool(value >= least)


@dataclass(frozen=True)
class Parsing:
    """What becomes of a serialised example.

    Attributes
    ----------
    specs : mapping
        The features to parse, in the metadata's order.
    structure : Structure or None
        The structure of the result; None: a dict, or a tuple of ``as_tuple``.
    as_tuple : tuple of str
        The features of a tuple, in its order.
    components : tuple of str
        The features of a dict.
    encoded : tuple of str
        Features that stay as they are stored.
    missing : mapping
        The values of features in the examples that lack them.
    num_classes : int
        Added to a dict, if it is not 0.
    leaves : tuple of Leaf
        The components that several features store together.
    """

    specs: Mapping[str, FeatureSpec]
    structure: Structure | None = None
    as_tuple: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    encoded: tuple[str, ...] = ()
    missing: Mapping[str, Any] = field(default_factory=dict)
    num_classes: int = 0
    leaves: tuple[Leaf, ...] = ()

    @property
    def is_fixed(self) -> bool:
        """Whether all examples have the same shapes, so that batches parse at once."""
        are_tensors = all(leaf.kind in ("tensor", "none") for leaf in self.leaves)
        return (
            are_tensors
            and not self.encoded
            and all(
                spec.is_fixed and spec.encoding in (*LISTS, *ARRAYS, INT8)
                for spec in self.specs.values()
            )
        )


def choose_parsing(
    metadata: Metadata,
    features: Sequence[str] | None,
    as_supervised: Sequence[str] | bool | None,
    encoded: Sequence[str],
    missing: Mapping[str, Any] | None,
) -> Parsing:
    """Returns how examples are parsed, from the arguments of ``replay``."""
    structure = None if metadata.elements is None else metadata.elements.structure
    names = component_names(metadata.features, structure)
    as_tuple = _choose_tuple(metadata, as_supervised, names)
    if as_tuple:
        if features is not None:
            raise InputError("Give either `features` or `as_supervised`, not both.")
        features = as_tuple
    encoded = [encoded] if isinstance(encoded, str) else list(encoded)
    for name in [*encoded, *(missing or ())]:
        check_name("feature", name, names)
    for name, value in (missing or {}).items():
        check_missing(metadata.features[name], value)
    chosen = choose_features(metadata, features)
    specs = needed_features(chosen, metadata.features, structure)
    return Parsing(
        specs,
        structure if features is None else None,
        as_tuple,
        tuple(name for name in names if name in chosen),
        tuple(encoded),
        dict(missing or {}),
        len(metadata.classes),
        () if structure is None else tuple(leaves(structure)),
    )


def _choose_tuple(
    metadata: Metadata, as_supervised: Sequence[str] | bool | None, names: Sequence[str]
) -> tuple[str, ...]:
    """Returns the features of ``as_supervised``; none if elements are no tuples."""
    if as_supervised is None or as_supervised is False:
        return ()
    if as_supervised is True:
        return _input_and_target(metadata, names)
    if (
        isinstance(as_supervised, str)
        or not isinstance(as_supervised, Sequence)
        or len(as_supervised) < 2
    ):
        raise OptionError(
            "as_supervised",
            "must be True, or name two features or more, for example "
            f"('log_mel', 'target'); the features are {', '.join(names)}",
            as_supervised,
        )
    return tuple(as_supervised)


def _input_and_target(metadata: Metadata, names: Sequence[str]) -> tuple[str, str]:
    """Returns the only feature of a transform, and ``target`` or ``labels``."""
    inputs: list[str] = []
    if metadata.recipe is not None:
        made = metadata.recipe.features.expressions or ("signal",)
        inputs = [name for name in names if name in made]
    targets = [name for name in names if name in ("target", "labels")]
    if len(inputs) == len(targets) == 1:
        return inputs[0], targets[0]
    raise OptionError(
        "as_supervised",
        "can be True only if there is one input and one target, but this data set has "
        f"{_counted(inputs, 'input')} and {_counted(targets, 'target')}; name two "
        f"features, of {', '.join(names)}",
        True,
    )


def _counted(names: Sequence[str], what: str) -> str:
    return f"{len(names)} {what}s" + f" ({', '.join(names)})" * bool(names)


def choose_features(metadata: Metadata, features: Sequence[str] | None) -> list[str]:
    """Returns the features with these names; without names, all components.

    Features that only belong to others, like the shape of an array, are no components.
    """
    structure = None if metadata.elements is None else metadata.elements.structure
    names = component_names(metadata.features, structure)
    chosen = names if features is None else features
    chosen = [chosen] if isinstance(chosen, str) else list(chosen)
    for name in chosen:
        check_name("feature", name, names)
    if not chosen:
        raise OptionError("features", "must name at least one", features)
    return chosen


def check_missing(spec: FeatureSpec, value: Any) -> None:
    """Raises OptionError if a feature cannot hold the value of where it is missing."""
    if spec.is_text:
        fits = isinstance(value, str | bytes)
    else:
        try:
            with np.errstate(all="ignore"):
                made = np.asarray(value).astype(numpy_dtype(spec.dtype))
        except (TypeError, ValueError):
            fits = False
        else:
            is_float = spec.dtype.startswith(("float", "bfloat", "complex"))
            fits = made.shape == () and bool(is_float or made == value)
    if not fits:
        raise OptionError("missing", f"{spec.name} is {spec.dtype}", value)


def check_name(kind: str, name: str, known: Iterable[str]) -> None:
    """Raises InputError if a name is not known; suggests the closest."""
    names = list(known)
    if not isinstance(name, str):
        raise OptionError(kind, f"must be the name of a {kind}", name)
    if name not in names:
        close = did_you_mean(name, names)
        hint = f" Did you mean {close!r}?" if close else ""
        raise InputError(f"There is no {kind} {name!r}, only {', '.join(names)}.{hint}")


def check_binary(
    binary: Sequence[str], specs: Mapping[str, FeatureSpec]
) -> tuple[str, ...]:
    """Returns the names of features whose values are bytes: these, and by their dtype.

    Raises
    ------
    InputError
        If there is no feature of this name.
    OptionError
        If its values are numbers.
    """
    names = (binary,) if isinstance(binary, str) else tuple(binary)
    for name in names:
        check_name("feature", name, specs)
        if not specs[name].is_text:
            raise OptionError("binary", "must name features of texts or bytes", name)
    typed = (name for name, spec in specs.items() if spec.dtype == BYTES)
    return tuple(dict.fromkeys((*names, *typed)))
