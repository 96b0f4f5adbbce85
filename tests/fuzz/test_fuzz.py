"""The fuzzer's short form, and that the fuzzer can find something."""

import numpy as np
import pytest

from tests.fuzz.__main__ import BAD, run
from tests.fuzz.cases import Case, Child, Outcome
from tests.fuzz.oracle import judge, repeats
from tests.fuzz.originals import originals


def test_mutated_files_are_recorded_rightly_or_rejected():
    # Every kind of file a few times. One that ffmpeg must judge takes 40 ms.
    assert run(seed=1, numbers=range(120)).keys().isdisjoint(BAD)


def test_undamaged_files_are_recorded_as_they_are():
    with Child() as child:
        for original in originals():
            outcome = child.run(Case(0, original, "none", original.data))
            assert outcome.end == "complete", (original.kind, outcome.reason)
            assert judge(Case(0, original, "none", original.data), outcome) == (
                "right",
                "as undamaged",
            )


@pytest.mark.parametrize("kind", ["WAV/PCM_16", "FLAC/PCM_16", "MP3/MPEG_LAYER_III"])
def test_the_oracle_can_find_repeated_and_invented_audio(kind):
    original = next(o for o in originals() if o.kind == kind)
    case = Case(0, original, "none", original.data)
    samples = original.samples
    doubled = np.concatenate([samples[:5000], samples[1000:5000], samples[5000:]])
    longer = np.concatenate([samples, samples[::-1]])
    for wrong in (doubled, longer):
        outcome = Outcome("complete", samples=wrong, channels=samples.shape[1])
        assert judge(case, outcome)[0] == "differs"
    assert repeats(doubled)
    assert not repeats(samples)
