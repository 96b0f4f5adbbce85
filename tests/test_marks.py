"""marks.py: what a watcher sees of a worker."""

import os
import threading
from collections import namedtuple

from beam_pipeline.marks import MOST_THREADS, Mark, Marks, new_states

Clip = namedtuple("Clip", "row source filepath")

FIRST, SECOND = Clip(3, 0, "a/1.wav"), Clip(4, 1, "b/ü\udcff.wav")


def marks_of(state) -> list[tuple]:
    return [(m.row, m.source, m.filepath, m.stage, m.step) for m in state.marks()]


def test_counts_add_up_where_somebody_watches():
    states = new_states(2)
    Marks.add(5, 1.0)  # nobody
    with Marks.kept_in(states[1]):
        Marks.add(5, 1.0)
        Marks.add(2, 0.5)
    Marks.add(5, 1.0)
    assert [(s.examples, s.seconds) for s in states] == [(0, 0.0), (7, 1.5)]


def test_a_mark_says_what_a_thread_does():
    (state,) = new_states(1)
    Marks.mark(FIRST, "decode")  # nobody
    with Marks.kept_in(state):
        assert state.marks() == []
        Marks.mark(FIRST, "decode")
        assert marks_of(state) == [(3, 0, "a/1.wav", "decode", "")]
        assert str(state.marks()[0]) == "a/1.wav: decoding it"
        Marks.mark(FIRST, "transform")
        Marks.step("feature mel")
        assert marks_of(state) == [(3, 0, "a/1.wav", "transform", "feature mel")]
        assert str(state.marks()[0]) == "a/1.wav: its feature mel"
        Marks.mark(SECOND, "encode")
        assert marks_of(state) == [(4, 1, "b/ü\udcff.wav", "encode", "")]
        Marks.unmark()
        assert state.marks() == []
        Marks.mark(SECOND, "decode")
    assert state.marks() == []


def test_every_mark_and_all_progress_is_new():
    (state,) = new_states(1)
    seen: set[Mark] = set()
    with Marks.kept_in(state):
        for change in (
            lambda: Marks.mark(FIRST, "decode"),
            lambda: Marks.mark(FIRST, "decode"),
            lambda: Marks.step(""),
            Marks.progress,
        ):
            change()
            assert seen.isdisjoint(state.marks())
            seen.update(state.marks())


def test_who_waits_for_a_store_has_no_mark():
    (state,) = new_states(1)
    with Marks.kept_in(state):
        Marks.mark(FIRST, "decode")
        (before,) = state.marks()
        with Marks.waiting():
            assert state.marks() == []
        (after,) = state.marks()
    assert after == before._replace(serial=after.serial) != before


def test_text_that_is_too_long_is_cut():
    (state,) = new_states(1)
    with Marks.kept_in(state):
        Marks.mark(Clip(1, 0, "x" * 9999), "decode")
        Marks.step("ü" * 9999)
        ((_, _, filepath, _, step),) = marks_of(state)
    assert filepath == "x" * 4111
    assert step.rstrip("\N{REPLACEMENT CHARACTER}") == "ü" * 119


def test_each_thread_has_a_mark_while_it_lives():
    (state,) = new_states(1)
    clips = [Clip(k, 0, f"{k}.wav") for k in range(3 * MOST_THREADS)]

    def work(clip, everybody, seen):
        Marks.mark(clip, "probe")
        everybody.wait(30)
        seen.wait(30)

    with Marks.kept_in(state):
        Marks.mark(Clip(999, 0, "own"), "probe")
        for start in range(0, len(clips), MOST_THREADS):
            some = clips[start : start + MOST_THREADS]
            everybody, seen = threading.Barrier(len(some) + 1), threading.Event()
            threads = [
                threading.Thread(target=work, args=(clip, everybody, seen))
                for clip in some
            ]
            for thread in threads:
                thread.start()
            everybody.wait(30)
            rows = sorted(mark.row for mark in state.marks())
            # This thread has a place, so one of the others has none.
            assert len(rows) == MOST_THREADS
            assert rows[-1] == 999
            assert set(rows[:-1]) < {clip.row for clip in some}
            seen.set()
            for thread in threads:
                thread.join()
        del thread, threads
        assert [mark.row for mark in state.marks()] == [999]


def test_a_fork_that_a_step_made_ends_at_the_next_mark():
    (state,) = new_states(1)
    with Marks.kept_in(state):
        Marks.mark(FIRST, "transform")
        process = os.fork()
        if process == 0:
            try:
                Marks.mark(SECOND, "encode")
            finally:
                os._exit(9)  # not reached
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 1
        assert marks_of(state) == [(3, 0, "a/1.wav", "transform", "")]
