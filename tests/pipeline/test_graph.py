"""The types of blocks between the steps of a job."""

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.typehints.decorators import TypeCheckError

from beam_pipeline.pipeline.graph import EncodeExamples, step
from beam_pipeline.write.blocks import FrameBlock, WindowBlock, cut_windows
from tests.raising import raises


@pytest.mark.parametrize(
    ("taking", "given"),
    [
        (step(cut_windows, FrameBlock, WindowBlock), WindowBlock),
        (beam.ParDo(EncodeExamples()), WindowBlock),
    ],
)
def test_a_step_takes_the_blocks_of_the_step_before(taking, given):
    pipeline = beam.Pipeline(runner=FnApiRunner())
    blocks = pipeline | beam.Create([]).with_output_types(given)
    with raises(TypeCheckError, naming=given.__name__):
        blocks | taking
