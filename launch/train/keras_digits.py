"""Keras learns spoken digits: ``keras_digits.py FSDD_FOLDER [--epochs N]``.

It is tested with speakers that it has never heard.
"""

import keras
from digits import parse_arguments, record_digits, show_results
from keras import layers

from beam_pipeline import replay


def make_model(frames, bins, classes):
    """Two convolutions over bands and time, two over time, the maximum over time."""
    return keras.Sequential(
        [
            keras.Input((frames, bins)),
            layers.Reshape((frames, bins, 1)),
            layers.Conv2D(16, 3, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.ReLU(),
            layers.MaxPool2D((1, 2)),
            layers.Conv2D(32, 3, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.ReLU(),
            layers.MaxPool2D(2),
            layers.Reshape((frames // 2, bins // 4 * 32)),
            layers.Conv1D(96, 5, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.ReLU(),
            layers.MaxPool1D(2),
            layers.Conv1D(96, 3, padding="same", activation="relu"),
            layers.GlobalMaxPool1D(),
            layers.Dropout(0.4),
            layers.Dense(classes, activation="softmax"),
        ]
    )


def smoothed_loss(target, probabilities):
    """The cross-entropy, where a tenth of each target is spread over all classes."""
    wanted = keras.ops.one_hot(target, probabilities.shape[1])
    return keras.losses.categorical_crossentropy(
        wanted, probabilities, label_smoothing=0.1
    )


def main():
    arguments = parse_arguments(__doc__, epochs=20)
    keras.utils.set_random_seed(arguments.seed)
    records = record_digits(arguments.sounds, arguments.out, arguments.test)
    names = ("mel", "target")
    train = replay(
        records, split="train", as_supervised=names, batch_size=64, shuffle=True
    )
    test = replay(records, split="test", as_supervised=names, batch_size=250)

    model = make_model(*train.element_spec[0].shape[1:], len(train.class_names))
    steps = arguments.epochs * len(train)
    rate = keras.optimizers.schedules.CosineDecay(
        1e-4, steps * 7 // 10, warmup_target=4e-3, warmup_steps=steps * 3 // 10
    )
    optimizer = keras.optimizers.AdamW(rate, weight_decay=0.01)
    model.compile(optimizer, loss=smoothed_loss, metrics=["accuracy"])
    model.fit(train, epochs=arguments.epochs, shuffle=False, verbose=2)
    show_results(records, model.predict(test, verbose=0))


if __name__ == "__main__":
    main()
