"""Errors keep their messages between processes, and never tell credentials."""

import copy
import pickle

import pytest

from beam_pipeline import errors
from beam_pipeline.cli.main import main
from beam_pipeline.dataset.folders import read_run_error, storing_error
from beam_pipeline.dataset.tables import reject_line
from beam_pipeline.errors import AudioTFRecordsError, OptionError, StoreError
from beam_pipeline.planning.clips import Reject
from beam_pipeline.storage.claim import UNCLAIMED
from beam_pipeline.text import hidden, holds_credentials

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
    assert errors.InputError("Check `tail`.").told(flags) == "Check --tail."


# Credentials

ADDRESSES = [
    "s3://KEY:SECRET@bucket/x.wav",
    "S3://SECRET@bucket",
    "gs://b/x.wav?X-Goog-Signature=SECRET",
    "https://b/x.wav?v=1&X-Amz-Security-Token=SECRET&z=2",
    "https://b/x.wav?sig=SECRET",
]
OPTIONS = ["--s3_secret_access_key=SECRET", "--s3_session_token SECRET"]


@pytest.mark.parametrize("text", [*ADDRESSES, *OPTIONS])
def test_credentials_are_hidden_wherever_they_stand(text):
    for around in ("{}", "see '{}'. More", "{}, {}", '["{}"]'):
        found = hidden(around.format(text, text))
        assert "SECRET" not in found
        assert "***" in found
    for error in (
        OptionError("input", "is wrong", text),
        StoreError(text, f"does not answer at {text}"),
        errors.UnreadableAudio("x.wav", f"cannot open {text}"),
    ):
        assert "SECRET" not in str(error) + str(pickle.loads(pickle.dumps(error)))


@pytest.mark.parametrize(
    "text",
    [
        "me@example.org", "s3://bucket/a@b/x", "gs://b/x?v=1", "a?b=c", "--win-len 5",
        "key: 5", "tokens=3", "s3://bucket/signature/x.wav", "data/x.wav?sig=1",
    ],
)  # fmt: skip
def test_other_texts_stay(text):
    assert not holds_credentials(text)
    assert hidden(text) == text or "sig=" in text


def test_addresses_with_credentials_are_refused(capsys, tmp_path):
    for text in ADDRESSES:
        assert holds_credentials(text)
        for command in (
            ["verify", text],
            ["show", text],
            ["audit", text],
            ["status", text],
            ["plan", "--input", text, "--win-len", "5"],
            ["record", "--input", str(tmp_path), "--output", text, "--win-len", "5"],
        ):
            assert main(command) == 2, command
            out = "".join(capsys.readouterr())
            assert "SECRET" not in out
            assert "credentials" in out or "audio file" in out


def test_files_of_a_run_hold_none(tmp_path):
    text = ADDRESSES[0]
    reject = Reject(0, "x.wav", "probe", "UnreadableAudio", f"cannot open {text}")
    assert b"SECRET" not in reject_line(reject)
    with pytest.raises(StoreError), storing_error(str(tmp_path), UNCLAIMED):
        raise StoreError(text, "refuses access")
    assert b"SECRET" not in (tmp_path / "error.json").read_bytes()
    assert "***" in str(read_run_error(str(tmp_path)))
