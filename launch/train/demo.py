"""Trains a tiny network on the log-mel spectra of a data set: ``demo.py RECORDS``.

The data set has the splits train and test."""

import sys

import keras

from beam_pipeline import Metadata, replay

BATCH_SIZE = 32
EPOCHS = 20


def main(records: str) -> None:
    """Trains for some epochs, and prints the accuracy on the clips of the test."""
    metadata = Metadata.load(records)
    classes = metadata.classes
    if len(classes) < 2 or not {"train", "test"} <= metadata.splits.keys():
        sys.exit(
            f"{records} has {len(classes)} classes ({', '.join(classes)}) and the "
            f"splits {', '.join(metadata.splits)}. Training needs two classes, and "
            "clips for train and test: give a folder for each class, of several files."
        )
    keras.utils.set_random_seed(0)  # the same accuracy in each run
    examples, test = (
        replay(
            records,
            split=split,
            as_supervised=("log_mel", "target"),
            batch_size=BATCH_SIZE,
            shuffle=split == "train",
            seed=0,
            normalize=True,  # by the statistics of train
        )
        for split in ("train", "test")
    )
    spectra, _ = examples.element_spec
    model = keras.Sequential(
        [
            keras.Input(spectra.shape[1:]),
            keras.layers.Reshape((*spectra.shape[1:], 1)),
            keras.layers.Conv2D(8, 5, strides=3, activation="relu"),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(len(classes), activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    model.fit(examples, epochs=EPOCHS, shuffle=False, verbose=0)
    _, accuracy = model.evaluate(test, verbose=0)
    print(f"{len(classes)} classes, accuracy on other clips {accuracy:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
