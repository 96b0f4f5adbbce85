"""The toy example of TFRecorder's document, for our engine and for that of the replica.

An example is the row ``name, label`` of a CSV file. Its data are in ``name.npy``.
"""

import os

import numpy as np

try:
    from beam_pipeline.tfrecorder import Example, tfrecordable
except ImportError:
    Example = None


class Hooks:
    """What the user writes: how an example is made, loaded and split."""

    def __init__(self, name, label):
        super().__init__()
        self.name = name
        self._label = label
        self._data = None

    def load(self, src_data_dirpath=None, normalize=False, **kwargs):
        data = np.load(os.path.join(src_data_dirpath, f"{self.name}.npy"))
        if normalize:
            data /= np.max(data)
        self._data = data

    def split(self, chunk_size_in_bins=5, **kwargs):
        chunks = []
        for i in range(0, self._data.shape[0], chunk_size_in_bins):
            chunk = type(self)(f"{self.name}_{i}", self._label)
            chunk._data = self._data[i : i + chunk_size_in_bins]
            chunks.append(chunk)
        return chunks

    @classmethod
    def from_csv_row(cls, row, **kwargs):
        return cls(name=row[0], label=int(row[1]))

    def to_csv_row(self):
        return [self.name, self._label]


class ReplicaToyExample(Hooks):
    """For :func:`tests.benchmarks.tfrecorder_engine.write_like_tfrecorder`."""

    FIELDS = (("label", "int"), ("data", "array"))

    @property
    def label(self):
        return self._label

    @property
    def data(self):
        return self._data

    def release(self):
        self._label = self._data = None


if Example is not None:

    class ToyExample(Hooks, Example):
        """For :mod:`beam_pipeline.tfrecorder`, as the document declares it."""

        @tfrecordable(dtype=Example.Field.TYPE_INT32)
        def label(self):
            return self._label

        @label.setter
        def label(self, value):
            self._label = value

        @tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)
        def data(self):
            return self._data

        @data.setter
        def data(self, value):
            self._data = value
