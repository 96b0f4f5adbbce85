"""Records typed examples, on this machine or with options of Beam.

    record_toys.py DATA OUTPUT [OPTION ...]

OUTPUT/module has examples of a module's class, which workers must be able to import;
OUTPUT/script those of a class of this script, which the job brings along.
"""

import csv
import os
import sys
import time

import numpy as np
from toy_example import ToyExample

from beam_pipeline.tfrecorder import IgnoreExampleException, factory

ROWS = 1000


class SlowExample(ToyExample):
    """Takes so long that a worker can be killed in the middle."""

    def load(self, pause=0.0, **kwargs):
        time.sleep(pause)
        if self.label % 50 == 7:
            raise IgnoreExampleException("it is left out")
        super().load(**kwargs)

    @staticmethod
    def from_csv_row(row, **kwargs):
        return SlowExample(name=row[0], label=int(row[1]))


def make_data(folder):
    os.makedirs(folder)
    with open(f"{folder}/list.csv", "w", newline="") as file:
        for label in range(ROWS):
            values = np.random.default_rng(label).random((label % 12 + 1, 3))
            np.save(f"{folder}/{label}.npy", values.astype(np.float32))
            csv.writer(file).writerow([label, label])


def main(data, output, *beam_args):
    if not os.path.exists(data):
        make_data(data)
    for name, cls, pause in (
        ("module", ToyExample, 0.0),
        ("script", SlowExample, 0.02),
    ):
        counts = factory.generate_and_save_train_eval_test_tfrecords_files(
            f"{output}/{name}",
            cls,
            f"{data}/list.csv",
            [0.7, 0.2, 0.1],
            examples_tfrecord_file_max_size_in_bytes=20_000,
            beam_args=beam_args,
            src_data_dirpath=data,
            normalize=True,
            pause=pause,
        )
        print(name, counts)


if __name__ == "__main__":
    main(*sys.argv[1:])
