"""A mix of data sets as ``tf.data``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.read.choices import choose_features
from beam_pipeline.read.draws import Draws
from beam_pipeline.read.records import Records
from beam_pipeline.read.replay import replay

_BLOCK = 4096


def replay_mixed(
    sources: Sequence[Records],
    seeds: Sequence[int],
    draws: Draws,
    *,
    batch_size: int | None = None,
    drop_remainder: bool = False,
    repeat: bool | int = False,
    shuffle: bool | int | str = "global",
    **options: Any,
) -> tf.data.Dataset:
    """Returns the mix of several sources, see :meth:`.Mixed.replay`."""
    for name in ("split", "features", "seed"):
        if name in options:
            value = options[name]
            raise OptionError(name, "is that of the mix; give it to `mix`", value)
    if options.get("mixup") is not None:
        raise OptionError(
            "mixup", "is for one data set, not for a mix of several", options["mixup"]
        )
    if drop_remainder and batch_size is None:
        raise OptionError("drop_remainder", "needs `batch_size`", drop_remainder)
    is_endless = draws.ends == "repeat"
    datasets = []
    for records, seed in zip(sources, seeds, strict=True):
        if not records.is_whole:
            raise InputError(
                f"{records!r} is a view of some examples, which `replay` cannot read. "
                "Mix whole splits, or use `batches`."
            )
        names = list(records.features)
        every = names == choose_features(records.metadata, None)
        dataset = replay(
            records.folder,
            split=records.split,
            statistics=records.statistics,
            features=None if every or "as_supervised" in options else names,
            shuffle=shuffle,
            # tf.random takes no larger numbers.
            seed=seed if shuffle == "global" else seed >> 33,
            repeat=is_endless,
            **options,
        )
        datasets.append(dataset)
    mixed = tf.data.Dataset.choose_from_datasets(
        datasets, _choices(draws), stop_on_empty_dataset=False
    )
    length = tf.data.INFINITE_CARDINALITY if is_endless else len(draws.all(0))
    mixed = mixed.apply(tf.data.experimental.assert_cardinality(length))
    if batch_size is not None:
        mixed = mixed.batch(batch_size, drop_remainder)
    if repeat:
        mixed = mixed.repeat(None if repeat is True else repeat)
    return mixed.prefetch(2).with_options(_options())


def _choices(draws: Draws) -> tf.data.Dataset:
    """Returns the source of each example, as int64 scalars."""
    if draws.ends == "repeat":
        nothing = np.zeros(len(draws.lengths), np.int64)

        def draw(block: Any) -> Any:
            return draws.take(0, int(block) * _BLOCK, nothing, _BLOCK)

        blocks = tf.data.Dataset.counter()
    else:
        found = draws.all(0)

        def draw(block: Any) -> Any:
            return found[int(block) * _BLOCK : (int(block) + 1) * _BLOCK]

        blocks = tf.data.Dataset.range(-(-len(found) // _BLOCK))

    def choose(block: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(draw, [block], tf.int64), [None])

    return blocks.map(choose).unbatch()


def _options() -> tf.data.Options:
    options = tf.data.Options()
    options.autotune.enabled = False
    policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    options.experimental_external_state_policy = policy
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    return options
