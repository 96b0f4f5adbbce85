"""How examples hold a feature of a recipe: by its type and shape, or as it names."""

from __future__ import annotations

from dataclasses import replace

from beam_pipeline.errors import RecipeError
from beam_pipeline.examples.clip_shapes import check_holds_shape
from beam_pipeline.examples.spec import FLAC, FeatureSpec, encoding_problem
from beam_pipeline.examples.trial import the_sample_rate
from beam_pipeline.recipe.example_sections import Features
from beam_pipeline.transforms.base import Transform, rate_after, steps_of
from beam_pipeline.transforms.steps import TRANSFORM


def with_encoding(
    spec: FeatureSpec,
    features: Features,
    transform: Transform,
    sample_rate_hz: int | None,
) -> FeatureSpec:
    """Returns the spec with the encoding that the recipe names for it, if any.

    Parameters
    ----------
    sample_rate_hz : int or None
        That of the windows; None if clips have different rates.

    Raises
    ------
    RecipeError
        If the encoding cannot hold the feature.
    """
    encoding = features.encodings.get(spec.name, spec.encoding)
    if encoding == FLAC:
        rate = the_sample_rate(sample_rate_hz, TRANSFORM, f"{spec.name}={FLAC}")
        for step in steps_of(transform):
            rate = rate_after(step, rate)
        spec = replace(spec, rate_hz=rate)
    problem = encoding_problem(spec, encoding)
    if problem is not None:
        raise RecipeError(f"encodings: {spec.name}", problem, encoding)
    chosen = replace(spec, encoding=encoding)
    check_holds_shape(chosen)
    return chosen
