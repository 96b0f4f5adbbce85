import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.elements.record_dataset import record_dataset
from beam_pipeline.read.replay import replay
from tests.elements.structures import dataset_of, expect_equal, structures


@settings(max_examples=40, deadline=None)
@given(structures(), st.integers(0, 5), st.integers(0, 2**32))
def test_any_structure_comes_back(drawn, count, seed):
    specs, make = drawn
    dataset = dataset_of(specs, make, count, seed)
    with tempfile.TemporaryDirectory() as folder:
        record_dataset(dataset, f"{folder}/out", elements_per_file=2)
        replayed = replay(f"{folder}/out")
        assert replayed.element_spec == dataset.element_spec
        found = list(replayed)
        assert len(found) == count
        for one, other in zip(found, dataset, strict=True):
            expect_equal(one, other)
