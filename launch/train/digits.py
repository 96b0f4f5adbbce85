"""What the scripts for spoken digits share: the data set, and what a model got wrong.

The sounds are those of the Free Spoken Digit Dataset: ``DIGIT_SPEAKER_N.wav``, 8 kHz.
"""

import argparse
from pathlib import Path

import numpy as np

from beam_pipeline import open_records, record, report

WORST = 10


def parse_arguments(description, epochs):
    """Returns the arguments of a script; `epochs` is their default."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("sounds", metavar="FSDD_FOLDER")
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--seed", type=int, default=0, help="of the model")
    parser.add_argument("--out", default="digits", help="folder of what is written")
    parser.add_argument(
        "--test", default="theo,yweweler", help="speakers that training never hears"
    )
    return parser.parse_args()


def record_digits(sounds, out, test):
    """Records the digits, unless they are there; returns the folder of the records.

    The speakers of the split ``test`` are in no other. Each clip of ``train`` has four
    augmented copies: of another speed, with noise and masks.
    """
    rows = []
    for path in sorted(Path(sounds).glob("?_*_*.wav")):
        digit, speaker, _ = path.stem.split("_")
        split = "test" if speaker in test.split(",") else "train"
        row = {"path": str(path), "digit": digit, "speaker": speaker, "split": split}
        rows.append(row)
    records = str(Path(out) / "records")
    record(
        rows,
        records,
        label_from="digit",
        group_by="speaker",
        split_column="split",
        win_seconds=0.8,
        short_clips="pad",
        max_windows=1,
        copies=4,
        augment="speed(low=0.75,high=1.3)|time_shift(max_s=0.1)|noise(low_snr_db=10)",
        features={
            "mel": "peak_gain()|log_mel(n_fft=256,hop=160,n_mels=32,floor=0.001)"
            "|cmvn(norm_vars=False)"
            "|spec_augment(freq_masks=1,max_bins=8,time_masks=1,max_frames=5)",
            "signal": "identity()",
        },
        encodings={"signal": "float16"},
    )
    return records


def show_results(records, probabilities):
    """Prints the accuracy, a confusion matrix and the worst errors.

    Parameters
    ----------
    records : str
        The folder of the data set.
    probabilities : array, shape (examples, classes)
        Of each class, for each example of the split ``test``, in the order on disk.
    """
    test = open_records(records, "test", features=["target", "speaker"])
    truth, speakers = (test.read(slice(None))[name] for name in ("target", "speaker"))
    predicted = np.argmax(probabilities, axis=1)
    right = predicted == truth
    print(f"accuracy on unseen speakers: {right.mean():.1%}")
    for speaker in np.unique(speakers):
        print(f"  {speaker}: {right[np.asarray(speakers) == speaker].mean():.1%}")
    print(format_confusion(truth, predicted, test.classes))
    certainty = probabilities[np.arange(len(truth)), predicted]
    worst = np.flatnonzero(~right)
    worst = worst[np.argsort(-certainty[worst], kind="stable")][:WORST]
    page = report(
        records, Path(records).parent / "report.html", examples={"test": worst.tolist()}
    )
    print("worst errors: file, from second, true class, predicted class, probability")
    for number in worst.tolist():
        source = test.source(number)
        print(
            f"  {source.path}, {source.start_s:.2f} s, {test.classes[truth[number]]}, "
            f"{test.classes[predicted[number]]}, {certainty[number]:.2f}, "
            f"{page}#test-{number}"
        )


def format_confusion(truth, predicted, classes):
    """Returns a table: true classes are rows, predicted ones columns."""
    counts = np.zeros((len(classes), len(classes)), int)
    np.add.at(counts, (truth, predicted), 1)
    width = max(5, *(len(name) + 1 for name in classes))
    lines = [" " * width + "".join(name.rjust(width) for name in classes)]
    for name, row in zip(classes, counts, strict=True):
        lines.append(name.rjust(width) + "".join(str(n).rjust(width) for n in row))
    return "\n".join(lines)
