"""Mixes the examples of a batch in pairs, and their targets with them (mixup)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.hashing import hash64
from beam_pipeline.parameters import is_real

TARGETS = ("target", "labels")
NOTHING_TO_MIX = (
    "mixup: no feature can be mixed. It needs floating-point features of one shape; "
    "read some of them, or leave `mixup` out."
)
NOTHING_TO_WEIGH = (
    "mixup: the target is a whole number, but the data set has no classes, so there is "
    "nothing between two targets. Leave `mixup` out."
)


class Mixup(NamedTuple):
    """How batches are mixed.

    Attributes
    ----------
    alpha : float
        The parameter of the Beta distribution of the weights.
    seed : int
    classes : int
        The number of classes; 0 if the data set has none.
    """

    alpha: float
    seed: int
    classes: int

    def features(self, specs: Mapping[str, FeatureSpec]) -> dict[str, FeatureSpec]:
        """Returns the features of batches that are mixed."""
        made = dict(specs)
        for name in TARGETS:
            if name in made and not made[name].dtype.startswith("float"):
                shape = (self.classes,) if name == "target" else made[name].shape
                made[name] = replace(made[name], dtype="float32", shape=shape)
        return made

    def mix(
        self, batch: Mapping[str, Any], epoch: int, position: int
    ) -> dict[str, Any]:
        """Returns a batch whose example ``i`` is mixed with another one, ``p[i]``.

        ::

            y[i] = w[i] x[i] + (1 - w[i]) x[p[i]]

        ``position`` is that of the batch's first example in its epoch.

        Raises
        ------
        InputError
            If nothing can be mixed, or the target has no classes.
        """
        names = [name for name, values in batch.items() if _is_float(values)]
        if not [name for name in names if name not in TARGETS]:
            raise InputError(NOTHING_TO_MIX)
        made = dict(batch)
        size = len(batch[names[0]])
        weights, partners = draw_pairs(size, self.alpha, self.seed, epoch, position)
        for name in TARGETS:
            if name in batch and not _is_float(batch[name]):
                made[name] = self._weighted_classes(name, batch[name])
                names.append(name)
        for name in names:
            values = made[name]
            weight = weights.astype(values.dtype)
            weight = weight.reshape(-1, *[1] * (values.ndim - 1))
            made[name] = weight * values + (1 - weight) * values[partners]
        return made

    def _weighted_classes(self, name: str, values: Any) -> npt.NDArray[np.float32]:
        """Targets as weights of all classes, of shape (n, classes)."""
        values = np.asarray(values)
        if name == "labels":
            return np.asarray(values, np.float32)
        if values.ndim != 1 or not self.classes:
            raise InputError(NOTHING_TO_WEIGH)
        # A target of -1 has no class.
        hot = values[:, np.newaxis] == np.arange(self.classes)
        return np.asarray(hot, np.float32)


def check_alpha(alpha: Any) -> float:
    """Returns the parameter of ``mixup``.

    Raises
    ------
    OptionError
        If it is not a positive number.
    """
    if not is_real(alpha) or not 0 < alpha <= 1000:
        raise OptionError("mixup", "must be a number above 0, at most 1000", alpha)
    return float(alpha)


def draw_pairs(
    size: int, alpha: float, seed: int, epoch: int, position: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Returns the weight of each example of a batch, and its partner's number.

    Weights have the distribution Beta(alpha, alpha); the partners are a permutation.
    All depends on the seed, the epoch and the position alone.
    """
    from scipy.special import betaincinv  # here: other readers do without it

    key = 0
    for number in (seed, epoch, position):
        (word,) = hash64(key, np.array([number % 2**63])).tolist()
        key = word
    words = hash64(key, np.arange(2 * size))
    partners = np.argsort(words[:size], kind="stable")
    uniform = (words[size:] >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return betaincinv(alpha, alpha, uniform), partners


def _is_float(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.dtype.kind == "f"
