"""Keras finds events in time: ``keras_events.py FOLDER [--epochs N] [--scenes N]``.

The events are synthesised, and their times are known. Each frame of a spectrum has a
target for each class, because events overlap.
"""

import argparse
import sys
from pathlib import Path

import keras
import numpy as np
from keras import layers

from beam_pipeline import Metadata, record, replay

sys.path.append(str(Path(__file__).parents[1]))
from synthesise import write_scenes


def record_scenes(folder, scenes):
    """Writes scenes and records them, unless they are there; returns the records."""
    sounds, records = f"{folder}/scenes", f"{folder}/records"
    write_scenes(sounds, scenes=scenes)
    record(
        sounds,
        records,
        win_seconds=2,
        events="{folder}/{stem}.csv",
        event_targets="mask:mel",
        splits="train=.75,test=.25",
        features={"mel": "log_mel(n_fft=512,hop=256,n_mels=40)"},
    )
    return records


def make_model(bins, classes):
    """Convolutions over time. An output depends on 21 frames, a third of a second."""
    model = keras.Sequential([keras.Input((None, bins))])
    for dilation in (1, 1, 2, 2, 4):
        model.add(layers.Conv1D(64, 3, padding="same", dilation_rate=dilation))
        model.add(layers.BatchNormalization())
        model.add(layers.ReLU())
    model.add(layers.Dense(classes, activation="sigmoid"))
    return model


def average_precision(truth, scores):
    """Returns the mean of the precision at each frame with an event, by score.

    Frames of equal scores count together, as in scikit-learn.
    """
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(truth[order])
    last = np.flatnonzero(np.diff(scores[order], append=-np.inf))
    precision = hits[last] / (last + 1)
    recalled = np.diff(hits[last], prepend=0)
    return float(np.sum(precision * recalled) / hits[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", metavar="FOLDER", help="of all that is written")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--scenes", type=int, default=240)
    parser.add_argument("--seed", type=int, default=0, help="of the model")
    arguments = parser.parse_args()
    keras.utils.set_random_seed(arguments.seed)
    records = record_scenes(arguments.folder, arguments.scenes)
    names = ("mel", "mel_mask")
    train = replay(
        records,
        split="train",
        as_supervised=names,
        batch_size=16,
        shuffle=True,
        normalize=True,
    )
    test = replay(
        records, split="test", as_supervised=names, batch_size=16, normalize=True
    )
    classes = Metadata.load(records).classes

    model = make_model(train.element_spec[0].shape[2], len(classes))
    model.compile(keras.optimizers.Adam(2e-3), loss="binary_crossentropy")
    model.fit(train, epochs=arguments.epochs, shuffle=False, verbose=2)

    truth = np.concatenate([mask.numpy() for _, mask in test]).reshape(-1, len(classes))
    scores = model.predict(test, verbose=0).reshape(-1, len(classes))
    print("average precision over the frames of unseen scenes")
    found = []
    for name, wanted, given in zip(classes, truth.T, scores.T, strict=True):
        if not wanted.any():
            print(f"  {name}: no event in these scenes")
            continue
        found.append(average_precision(wanted, given))
        print(f"  {name}: {found[-1]:.3f}, by chance {wanted.mean():.3f}")
    print(f"mAP: {np.mean(found):.3f}")


if __name__ == "__main__":
    main()
