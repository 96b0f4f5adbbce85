"""Trains a tiny network on the log-mel spectra of a data set: ``demo.py RECORDS``."""

import sys

import keras

from beam_pipeline import Metadata, replay

BATCH_SIZE = 32
EPOCHS = 5


def main(records: str) -> None:
    """Trains for a few epochs, and prints the accuracy on the training data."""
    classes = Metadata.load(records).classes
    examples = replay(
        records,
        as_supervised=("log_mel", "target"),
        batch_size=BATCH_SIZE,
        shuffle=True,
    )
    spectra, _ = examples.element_spec
    model = keras.Sequential(
        [
            keras.Input(spectra.shape[1:]),
            keras.layers.Reshape((*spectra.shape[1:], 1)),
            keras.layers.BatchNormalization(),
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
    history = model.fit(examples, epochs=EPOCHS, shuffle=False, verbose=2)
    accuracy = history.history["accuracy"][-1]
    print(f"{len(classes)} classes, accuracy on the training data {accuracy:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
