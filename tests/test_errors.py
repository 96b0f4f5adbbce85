"""Errors keep their messages when they cross from one process to another."""

import copy
import pickle

import pytest

from beam_pipeline import errors
from beam_pipeline.errors import (
    AudioTFRecordsError,
    InputError,
    OptionError,
)

# The fields of a class, and of those that inherit from it.
FIELDS = {
    AudioTFRecordsError: [("something happened",), ()],
    errors.OptionError: [("hop_len", "must be positive", -3), ("hop_len", "is odd")],
    errors.UnknownOption: [("hop", "did you mean hop_len?")],
    errors.ClipError: [("a/1.wav", "it is short")],
    errors.ExampleError: [("example 3", "its method failed")],
    errors.StoreError: [("gs://a/b", "no answer"), ("gs://a/b", "no", "Try again.")],
    errors.WorkerDied: [("a worker ended", "Traceback ..."), ("a worker ended",)],
    errors.DamagedRecord: [("a/shard", 17, 3, "its checksum is wrong")],
    errors.VerificationError: [(["a: is missing", "b: is missing"],), ([],)],
}
CLASSES = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, AudioTFRecordsError)
]


@pytest.mark.parametrize("kind", CLASSES)
def test_errors_survive_pickling_copying_and_their_own_message(kind):
    for fields in next(FIELDS[base] for base in kind.__mro__ if base in FIELDS):
        error = kind(*fields)
        message = str(error)
        for field in fields:
            for part in field if isinstance(field, list) else [field]:
                assert str(part) in message or "Traceback" in part
        for same in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(same) is kind
            assert same.args == fields
            assert str(same) == message
        # As PyTorch does, with the traceback of a worker before the message.
        for text in (message, f"Caught in a worker.\n{message}"):
            rebuilt = kind(text)
            assert str(rebuilt) == text
            assert str(pickle.loads(pickle.dumps(rebuilt))) == text
            assert text in repr(rebuilt) or "\n" in text


def test_options_are_spelled_as_flags_but_values_are_not():
    flags = {"win_len": "--win-len", "tail": "--tail"}
    error = OptionError("win_len", "needs `tail` = pad, not `this`", "`tail`")
    assert str(error) == "win_len: needs `tail` = pad, not `this`; got '`tail`'"
    assert error.told(flags) == "--win-len: needs --tail pad, not `this`; got '`tail`'"
    several = OptionError("win_len and tail", "give only one of them")
    assert several.told(flags) == "--win-len and --tail: give only one of them"
    in_file = OptionError("r.yaml: tail", "must be text")
    assert in_file.told(flags) == "r.yaml: tail: must be text"
    assert InputError("Check `tail`.").told(flags) == "Check --tail."
