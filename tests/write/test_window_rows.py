"""Rows of windows: their levels against numpy, why they were left out, their text."""

import numpy as np
import pytest

from beam_pipeline.write.window_rows import (
    BY_KEEP,
    BY_NO_EVENT,
    KEPT,
    REJECTED,
    WindowRows,
    join_rows,
    levels_db,
    window_levels,
)


@pytest.mark.parametrize("shape", [(3, 100), (3, 2, 50)])
def test_levels_are_mean_squares_in_db(shape):
    square = np.ones(shape, np.float32)
    square[1] *= 0.5
    square[2] = 0
    assert levels_db(window_levels(square)).tolist() == pytest.approx(
        [0, 20 * np.log10(0.5), -np.inf], abs=0.005
    )


def test_extreme_levels():
    windows = np.array(
        [[1e-38, -1e-38], [1e30, 1e30], [np.nan, 0], [np.inf, 0]], np.float32
    )
    found = levels_db(window_levels(windows))
    assert found[0] == -np.inf  # its square is 0 in float32
    assert np.isnan(found[1:]).all()
    assert window_levels(np.zeros((0, 4), np.float32)).tolist() == []


def test_levels_are_sums_in_pairs():
    """Sums in the order of a processor's registers lose what follows the loud start."""
    window = np.full((1, 8 * 10**6), np.sqrt(0.9 * 2**-25), np.float32)
    window[:, :64] = 1
    power = (window.astype(np.float64) ** 2).mean()
    assert window_levels(window).tolist() == [np.rint(1000 * np.log10(power))]


@pytest.mark.parametrize("samples", [1, 7, 400, 16000, 70000])
@pytest.mark.parametrize("hop", [1, 100, 70000])
def test_levels_do_not_depend_on_other_windows(samples, hop):
    rng = np.random.default_rng(samples)
    signal = rng.standard_normal(samples + 20 * hop).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(signal, samples)[::hop]
    power = [np.add.reduce(np.ascontiguousarray(w) ** 2) for w in windows]
    expected = np.rint(1000 * np.log10(np.float64(power) / samples))
    assert window_levels(windows).tolist() == expected.tolist()


def test_the_first_reason_stays():
    rows = WindowRows.of(np.arange(4), *np.zeros((2, 4)))
    assert rows.kept.all()
    rows = rows.keep_only(np.array([True, False, True, True]), BY_KEEP)
    rows = rows.keep_only(np.array([True, False, False, True]), BY_NO_EVENT)
    assert rows.left_out.tolist() == [KEPT, BY_KEEP, BY_NO_EVENT, KEPT]
    rows = rows.rejected()
    assert rows.left_out.tolist() == [REJECTED, BY_KEEP, BY_NO_EVENT, REJECTED]


@pytest.mark.parametrize("n", [0, 1, 100])
def test_rows_survive_their_text(n):
    rng = np.random.default_rng(n)
    rows = WindowRows(*rng.integers(-(10**6), 10**12, (5, n)))
    found = WindowRows.unpack(join_rows([rows, rows]).pack())
    for column, expected in zip(found, rows, strict=True):
        assert column.tolist() == 2 * expected.tolist()
