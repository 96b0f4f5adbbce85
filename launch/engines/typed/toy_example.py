"""The class of docs/coming-from-other-libraries.md."""

import os

import numpy as np

from beam_pipeline.tfrecorder import Example, tfrecordable


class ToyExample(Example):
    def __init__(self, name, label):
        super().__init__()
        self.name = name
        self._label = label
        self._data = None  # loaded later

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

    def load(self, src_data_dirpath=None, normalize=False, **kwargs):
        self.data = np.load(os.path.join(src_data_dirpath, f"{self.name}.npy"))
        if normalize:
            self.data /= np.max(self.data)

    def split(self, chunk_size_in_bins=5, **kwargs):
        chunks = []
        for start in range(0, len(self.data), chunk_size_in_bins):
            chunk = ToyExample(f"{self.name}_{start}", self._label)
            chunk.data = self.data[start : start + chunk_size_in_bins]
            chunks.append(chunk)
        return chunks

    @staticmethod
    def from_csv_row(row, **kwargs):
        return ToyExample(name=row[0], label=int(row[1]))

    def to_csv_row(self):
        return [self.name, self._label]
