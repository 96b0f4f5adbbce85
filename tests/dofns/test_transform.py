"""Transform: bit for bit the transform of each window, in order."""

import pickle

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
from threadpoolctl import threadpool_info, threadpool_limits

from beam_pipeline import record
from beam_pipeline.dofns import CutWindows, Probe, Transform
from beam_pipeline.errors import InputError, OptionError, RecipeError, TransformError
from beam_pipeline.transforms.base import apply_transform
from beam_pipeline.transforms.mel import LogMel
from beam_pipeline.transforms.steps import parse_transform
from tests.pipelines import drive, exact, found_values, run_step, stored_values
from tests.raising import assert_names, raises
from tests.sounds import RATE, fail_on_loud, write_sound
from tests.transform_checks import noise

CHAIN = "peak_gain()|log_mel(n_fft=256,hop=64,n_mels=20)|delta()"


def dicts(windows):
    return [
        {"signal": w, "fs": RATE, "win_start_idx": 10 * i, "filepath": "x.wav"}
        for i, w in enumerate(windows)
    ]


def alone(expression, window, rate=RATE):
    transform = parse_transform(expression)
    with threadpool_limits(1):  # as in a step; with more, some sums round otherwise
        return apply_transform(transform, window[np.newaxis], rate)[0]


# What comes out


@pytest.mark.parametrize("call", ["cqt()", "stft()", "lufs()", "fft()", CHAIN])
def test_a_transform_is_applied_as_to_the_window_alone(call):
    windows = noise(5, 8000)
    dofn = pickle.loads(pickle.dumps(Transform(call, sample_rate=16000)))
    found = drive(dofn, list(windows))
    assert exact(found) == exact([alone(call, w, 16000) for w in windows])


@pytest.mark.parametrize(("expression", "rate"), [
    ("downsample(ratio=4)", 2000), ("resample(rate_hz=6000)", 6000),
    ("downsample(ratio=2)|resample(rate_hz=3000)|rms(frame=64)", 3000),
    ("log_mel(n_fft=256,n_mels=10)", 8000), ("peak_gain()", 8000),
])  # fmt: skip
def test_the_rate_follows_the_signal(expression, rate):
    windows = noise(2, 1600)
    found = drive(Transform(expression), dicts(windows))
    assert [element["fs"] for element in found] == [rate, rate]
    assert exact(found[0]["signal"]) == exact(alone(expression, windows[0]))
    beside = drive(Transform(expression, into="other"), dicts(windows))
    assert [element["fs"] for element in beside] == [RATE, RATE]
    assert exact(beside[1]["other"]) == exact(alone(expression, windows[1]))


def threads_of(windows):
    counts = {info["num_threads"] for info in threadpool_info()}
    return np.full(len(windows), max(counts, default=1))


def test_one_thread_until_the_last_step_ends():
    with threadpool_limits(2):
        before = threads_of([0])[0]
        first, second = Transform(threads_of), Transform(threads_of)
        first.setup()
        second.setup()
        first.teardown()
        assert threads_of([0])[0] == 1
        second.teardown()
        assert threads_of([0])[0] == before
        assert drive(Transform(threads_of), [noise(4)]) == [1]
        assert threads_of([0])[0] == before


# Transforms of one's own


def test_functions_and_other_types():
    def scaled(windows, sample_rate_hz):
        return windows / sample_rate_hz

    windows = noise(3, 100)
    found, _, _ = run_step(
        windows, Transform(np.negative), Transform(lambda w: w.max(axis=-1))
    )
    assert exact(found) == exact(list((-windows).max(axis=-1)))
    tensors = list(map(tf.constant, windows))
    found = drive(Transform("tests.sounds.first_sample"), tensors)
    assert exact(found) == exact(list(windows[:, 0].astype(np.float64)))
    found = drive(Transform(scaled), dicts(windows))
    assert exact([e["signal"] for e in found]) == exact(list(windows / RATE))
    found = drive(Transform(lambda w: w + w), [[1, 2], (3, 4)])
    assert exact(found) == exact([np.array([2, 4]), np.array([6, 8])])


# Errors


def loud_at(*positions, count=6):
    windows = 0.5 * np.ones((count, 50), np.float32)
    windows[list(positions), 7] = 1.0
    return dicts(windows)


def test_windows_that_fail_are_rejects():
    elements = loud_at(1, 2)
    made = drive(Transform(fail_on_loud, on_error="reject"), elements)
    tagged = [each for each in made if isinstance(each, beam.pvalue.TaggedOutput)]
    found = [each for each in made if each not in tagged]
    assert exact(found) == exact([elements[0], *elements[3:]])
    assert {each.tag for each in tagged} == {"rejects"}
    for each, position in zip(tagged, (1, 2), strict=True):
        reject = each.value
        assert (reject["path"], reject["stage"]) == ("x.wav", "transform")
        assert reject["error"] == "TransformError"
        assert_names(
            reject["reason"], "fail_on_loud", f"frame {10 * position}", "too loud"
        )


def test_an_error_names_file_window_step_and_cause():
    facts = ["x.wav", "frame 30", "fail_on_loud", "ValueError", "too loud"]
    with raises(TransformError, path="x.wav", naming=facts) as caught:
        drive(Transform(fail_on_loud), loud_at(3))
    assert isinstance(caught.value.__cause__, ValueError)
    with raises(TransformError, naming=facts):
        run_step(loud_at(3), Transform(fail_on_loud))
    with raises(TransformError, naming=[CHAIN, "x.wav", "frame 0", "n_fft"]):
        drive(Transform(CHAIN), dicts(noise(1, 100)))


def exits(windows):
    raise SystemExit(3)


@pytest.mark.parametrize(("function", "fact"), [
    (lambda w: w[:-1], "row"), (lambda w: w.sum(), "row"), (lambda w: None, "row"),
    (exits, "SystemExit"),
])  # fmt: skip
def test_what_a_transform_must_not_do(function, fact):
    with raises(TransformError, naming=["x.wav", fact]):
        drive(Transform(function), dicts(noise(3, 50)))


@pytest.mark.parametrize(("call", "element", "error", "facts"), [
    ("peak_gain()", {"audio": 1, "fs": 2}, InputError, ["signal", "audio, fs"]),
    ("peak_gain()", {}, InputError, ["signal", "none"]),
    ("log_mel()", noise(2000), OptionError, ["sample_rate", "log_mel"]),
    ("log_mel()", {"signal": noise(2000)}, OptionError, ["sample_rate", "log_mel"]),
])  # fmt: skip
def test_elements_that_lack_something(call, element, error, facts):
    with raises(error, naming=facts):
        drive(Transform(call), [element])


@pytest.mark.parametrize(("args", "options", "field"), [
    (("log_mal()",), {}, "feature"), (("",), {}, "feature"), ((3,), {}, "transform"),
    ((LogMel,), {}, "transform"), ((None,), {}, "transform"),
    (("rms()",), {"into": 3}, "into"),
    (("rms()",), {"sample_rate": 0}, "sample_rate"),
    (("rms()",), {"on_error": "drop"}, "on_error"),
])  # fmt: skip
def test_options_are_checked_at_once(args, options, field):
    with raises((OptionError, RecipeError), field):
        Transform(*args, **options)


# A pipeline


def test_features_are_those_that_record_stores(tmp_path):
    for number in range(3):
        path = tmp_path / "in" / f"{number}.wav"
        write_sound(path, 3000 + 700 * number, seed=number)
    metadata = record(
        tmp_path / "in", tmp_path / "out",
        win_len=800, hop=300, sample_rate=6000, features={"x": CHAIN}, num_shards=1,
    )  # fmt: skip
    found, rejects, _ = run_step(
        [f"{number}.wav" for number in range(3)],
        Probe(root=str(tmp_path / "in")),
        CutWindows(win_len=800, hop=300, sample_rate=6000, root=str(tmp_path / "in")),
        Transform(CHAIN, into="x"),
    )
    assert len(found) == 21
    wanted = stored_values(tmp_path / "out", metadata, "x")
    assert found_values(found, "x") == wanted
    assert rejects == []
