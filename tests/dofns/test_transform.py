"""Transform: bit for bit the transform of each window alone, in order."""

import pickle
from dataclasses import dataclass

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
from apache_beam.transforms.window import (
    FixedWindows,
    SlidingWindows,
    TimestampedValue,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from beam_pipeline import record
from beam_pipeline.dofns import CutWindows, Probe, Transform
from beam_pipeline.errors import InputError, OptionError, RecipeError, TransformError
from beam_pipeline.transforms.base import apply_transform
from beam_pipeline.transforms.mel import LogMel
from beam_pipeline.transforms.signals import PeakGain
from beam_pipeline.transforms.steps import parse_transform
from beam_pipeline.write.blocks import BLOCK_BYTES
from tests.pipelines import exact, found_values, run_step, stored_values
from tests.raising import assert_names, raises
from tests.sounds import RATE, fail_on_loud, write_sound
from tests.transform_checks import noise

CHAIN = "peak_gain()|log_mel(n_fft=256,hop=64,n_mels=20)|delta()"


@dataclass
class Recording:
    """A transform that notes the blocks it was called with."""

    def __call__(self, windows):
        SEEN.append((windows.shape, windows.flags.writeable))
        return windows.sum(axis=-1)


SEEN: list = []


def drive(dofn, elements):
    """What a step emits in one bundle without a runner: values with their place."""
    dofn.setup()
    try:
        dofn.start_bundle()
        made = []
        for number, element in enumerate(elements):
            made += dofn.process(element, number, f"window {number}", "pane")
        return [*made, *dofn.finish_bundle()]
    finally:
        dofn.teardown()


def values_of(made):
    return [wrapped.value for wrapped in made]


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
    found = values_of(drive(dofn, list(windows)))
    assert exact(found) == exact([alone(call, w, 16000) for w in windows])


@pytest.mark.parametrize(("expression", "rate"), [
    ("downsample(ratio=4)", 2000), ("resample(rate_hz=6000)", 6000),
    ("downsample(ratio=2)|resample(rate_hz=3000)|rms(frame=64)", 3000),
    ("log_mel(n_fft=256,n_mels=10)", 8000), ("peak_gain()", 8000),
])  # fmt: skip
def test_the_rate_follows_the_signal(expression, rate):
    windows = noise(2, 1600)
    found = values_of(drive(Transform(expression), dicts(windows)))
    assert [element["fs"] for element in found] == [rate, rate]
    assert exact(found[0]["signal"]) == exact(alone(expression, windows[0]))
    beside = values_of(drive(Transform(expression, into="other"), dicts(windows)))
    assert [element["fs"] for element in beside] == [RATE, RATE]
    assert exact(beside[1]["other"]) == exact(alone(expression, windows[1]))


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from([(200,), (300,), (2, 200), (2, 300)]), max_size=12),
    st.integers(1, 4),
)
def test_mixed_shapes_keep_their_order(shapes, batch):
    windows = [noise(*shape, seed=i) for i, shape in enumerate(shapes)]
    made = drive(Transform(PeakGain(), batch=batch), windows)
    assert exact(values_of(made)) == exact([PeakGain()(w[None])[0] for w in windows])
    # Each keeps its own time, Beam window and pane, not those of the last of its block.
    places = [(m.timestamp, m.windows, m.pane_info) for m in made]
    assert places == [(n, (f"window {n}",), "pane") for n in range(len(windows))]


@pytest.mark.parametrize("windowing", [FixedWindows(2), SlidingWindows(4, 2)])
def test_beams_windows_stay(windowing):
    """Sums of what is in each window of time, in blocks that cross them."""
    windows = noise(9, 50)
    pairs = [{"t": t, "signal": w} for t, w in enumerate(windows)]
    stamped = beam.Map(lambda pair: TimestampedValue(pair, pair["t"]))
    group = beam.Map(lambda pair: ("all", (pair["t"], float(pair["signal"][3]))))

    def grouped(*steps):
        found, _, _ = run_step(
            pairs, stamped, beam.WindowInto(windowing), *steps, group,
            beam.GroupByKey(), beam.MapTuple(lambda _, several: sorted(several)),
        )  # fmt: skip
        return sorted(found)

    found = grouped(Transform("gain(gain_db=0)", batch=4))
    assert found == grouped()
    assert len(found) == (5 if isinstance(windowing, FixedWindows) else 6)


# Blocks


@pytest.mark.parametrize(("frames", "rates", "sizes"), [
    (BLOCK_BYTES // 16, [RATE] * 9, [4, 4, 1]), (BLOCK_BYTES // 4, [RATE] * 2, [1, 1]),
    (BLOCK_BYTES // 4 + 1, [RATE] * 2, [1, 1]), (10, [RATE] * 513, [256, 256, 1]),
    (10, [8000, 8000, 16000, 8000], [2, 1, 1]),
])  # fmt: skip
def test_blocks_are_small_and_end_where_the_rate_changes(frames, rates, sizes):
    SEEN.clear()
    window = np.zeros(frames, np.float32)
    drive(Transform(Recording()), [{"signal": window, "fs": rate} for rate in rates])
    assert [((size, frames), False) for size in sizes] == SEEN


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
        assert values_of(drive(Transform(threads_of), [noise(4)])) == [1]
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
    found = values_of(drive(Transform("tests.sounds.first_sample"), tensors))
    assert exact(found) == exact(list(windows[:, 0].astype(np.float64)))
    found = values_of(drive(Transform(scaled), dicts(windows)))
    assert exact([e["signal"] for e in found]) == exact(list(windows / RATE))
    found = values_of(drive(Transform(lambda w: w + w), [[1, 2], (3, 4)]))
    assert exact(found) == exact([np.array([2, 4]), np.array([6, 8])])


# Errors


def loud_at(*positions, count=6):
    windows = 0.5 * np.ones((count, 50), np.float32)
    windows[list(positions), 7] = 1.0
    return dicts(windows)


@pytest.mark.parametrize("batch", [1, 4, None])
@pytest.mark.parametrize("positions", [(0,), (5,), (1, 2), tuple(range(6))])
def test_windows_that_fail_are_rejects(batch, positions):
    elements = loud_at(*positions)
    made = drive(Transform(fail_on_loud, batch=batch, on_error="reject"), elements)
    tagged = [each for each in made if isinstance(each, beam.pvalue.TaggedOutput)]
    found = values_of(each for each in made if each not in tagged)
    good = [e for i, e in enumerate(elements) if i not in positions]
    assert exact(found) == exact(good)
    assert {each.tag for each in tagged} == {"rejects"}
    assert [each.value.timestamp for each in tagged] == list(positions)
    rejects = [each.value.value for each in tagged]
    for reject, position in zip(rejects, positions, strict=True):
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
    (("rms()",), {"batch": 0}, "batch"), (("rms()",), {"key": ""}, "key"),
    (("rms()",), {"batch": 1.5}, "batch"), (("rms()",), {"into": 3}, "into"),
    (("rms()",), {"sample_rate": 0}, "sample_rate"),
    (("rms()",), {"on_error": "drop"}, "on_error"),
])  # fmt: skip
def test_options_are_checked_at_once(args, options, field):
    with raises((OptionError, RecipeError), field):
        Transform(*args, **options)


# A pipeline


def test_features_are_those_that_record_stores(tmp_path):
    """Files of two lengths; windows of both are in one block."""
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
