"""marks.py: what a watcher sees of a worker."""

from collections import namedtuple

from beam_pipeline.process import Mark, Marks, new_state

Clip = namedtuple("Clip", "row source filepath")

FIRST, SECOND = Clip(3, 0, "a/1.wav"), Clip(4, 1, "b/ü\udcff.wav")


def mark_of(state) -> tuple:
    """The mark without its serial number."""
    return state.mark()[:-1]


def test_counts_add_up_where_somebody_watches():
    states = [new_state(), new_state()]
    Marks.add(5, 1.0)  # nobody
    with Marks.kept_in(states[1]):
        Marks.add(5, 1.0)
        Marks.add(2, 0.5)
    Marks.add(5, 1.0)
    assert [(s.examples, s.seconds) for s in states] == [(0, 0.0), (7, 1.5)]


def test_a_mark_says_what_a_worker_does():
    state = new_state()
    Marks.mark(FIRST, "decode")  # nobody
    with Marks.kept_in(state):
        assert state.mark() is None
        Marks.mark(FIRST, "decode")
        assert mark_of(state) == (3, 0, "a/1.wav", "decode", "")
        assert str(state.mark()) == "a/1.wav: its stage decode"
        Marks.mark(FIRST, "transform")
        Marks.step("feature mel")
        assert mark_of(state) == (3, 0, "a/1.wav", "transform", "feature mel")
        assert str(state.mark()) == "a/1.wav: its feature mel"
        Marks.mark(SECOND, "encode")
        assert mark_of(state) == (4, 1, "b/ü\udcff.wav", "encode", "")
        Marks.unmark()
        assert state.mark() is None
        Marks.mark(SECOND, "decode")
    assert state.mark() is None


def test_every_mark_and_all_progress_is_new():
    state = new_state()
    seen: set[Mark] = set()
    with Marks.kept_in(state):
        for change in (
            lambda: Marks.mark(FIRST, "decode"),
            lambda: Marks.mark(FIRST, "decode"),
            lambda: Marks.step(""),
            Marks.progress,
        ):
            change()
            assert state.mark() not in seen
            seen.add(state.mark())


def test_threads_that_work_on_several_clips_share_one_mark():
    state = new_state()
    with Marks.kept_in(state):
        Marks.mark(FIRST, "probe")
        with Marks.working(threads=2):
            serial = state.mark().serial
            Marks.mark(SECOND, "probe")
            Marks.step("feature mel")
            with Marks.waiting():
                assert mark_of(state) == (3, 0, "a/1.wav", "probe", "")
            Marks.unmark()
            assert mark_of(state) == (3, 0, "a/1.wav", "probe", "")
            assert state.mark().serial == serial + 2
            assert state.several
        assert state.mark() is None
        assert not state.several
