"""Functions on ``tf.data``: folders of audio as data sets, windows, maps, batches.

The names and calls are those of the package ``tf_dataset``;
docs/coming-from-other-libraries says what differs.

In: a folder or a data frame of audio files, or any ``tf.data.Dataset`` of dicts with a
signal. Out: a ``tf.data.Dataset``. Nothing is written. Read :mod:`.signals` first: it
shows the whole chain.

::

    signals                      -> structure -> changes      -> structure
    folder -> frame -> Dataset      windows      one map each    batches

==================== ===============================================================
:mod:`.signals`      construct_metadata: a folder as a data frame; signal_dataset: a
                     data frame as whole signals; dataset_from_dir, training_dataset:
                     all in one call
:mod:`.structure`    dataset_signal_slice_windows, dataset_batch, dataset_compact, ...
:mod:`.changes`      dataset_signal_normalize, dataset_signal_downsample, ...; as_tf:
                     any transform of the catalogue in ``ds.map``
==================== ===============================================================

``record_dataset`` and ``replay_dataset`` are here, too; they write and read any data
set.
"""

from __future__ import annotations

from beam_pipeline.elements.record_dataset import record_dataset
from beam_pipeline.read.replay import replay_dataset
from beam_pipeline.tf_dataset.changes import (
    as_tf,
    dataset_prepare_signal_for_ml,
    dataset_signal_apply_analytic,
    dataset_signal_apply_hilbert,
    dataset_signal_downsample,
    dataset_signal_normalize,
    dataset_signal_safe_rescale,
    prepare_signal_for_ml,
    prepare_signal_for_ml_lite,
    safe_rescale,
)
from beam_pipeline.tf_dataset.signals import (
    construct_metadata,
    dataset_from_dir,
    signal_dataset,
    training_dataset,
)
from beam_pipeline.tf_dataset.structure import (
    dataset_batch,
    dataset_compact,
    dataset_flatten,
    dataset_onehot,
    dataset_prefetch,
    dataset_repeat,
    dataset_set_shapes,
    dataset_shuffle,
    dataset_signal_slice_windows,
    dataset_unbatch,
    grab,
    info,
    shapes,
)

__all__ = [
    "as_tf",
    "construct_metadata",
    "dataset_batch",
    "dataset_compact",
    "dataset_flatten",
    "dataset_from_dir",
    "dataset_onehot",
    "dataset_prefetch",
    "dataset_prepare_signal_for_ml",
    "dataset_repeat",
    "dataset_set_shapes",
    "dataset_shuffle",
    "dataset_signal_apply_analytic",
    "dataset_signal_apply_hilbert",
    "dataset_signal_downsample",
    "dataset_signal_normalize",
    "dataset_signal_safe_rescale",
    "dataset_signal_slice_windows",
    "dataset_unbatch",
    "grab",
    "info",
    "prepare_signal_for_ml",
    "prepare_signal_for_ml_lite",
    "record_dataset",
    "replay_dataset",
    "safe_rescale",
    "shapes",
    "signal_dataset",
    "training_dataset",
]
