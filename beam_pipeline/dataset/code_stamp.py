"""The modules that user-defined transforms come from."""

from __future__ import annotations

import hashlib
import sys

from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.transforms.code_hash import MAIN
from beam_pipeline.transforms.expressions import TRANSFORM, given_steps, parse_steps


def code_of(recipe: Recipe) -> dict[str, str]:
    """Returns the SHA-256 of each module that user-defined transforms come from.

    A run continues only if they are equal: a data set must not mix two versions.
    """
    code = {}
    for name, source in sources_of_code(recipe).items():
        with open(source, "rb") as file:
            code[name] = hashlib.sha256(file.read()).hexdigest()
    return code


def sources_of_code(recipe: Recipe) -> dict[str, str]:
    """Returns the file of each module that user-defined transforms come from.

    The recipe itself has the hash of what is defined in a script or a notebook.
    """
    sources, values = {}, recipe.to_json()
    expressions = [(text, TRANSFORM) for text in values["features"].values()]
    expressions += given_steps(values)
    for expression, kind in expressions:
        for step in parse_steps(expression, kind):
            name = getattr(step, "__module__", None) or type(step).__module__
            source = getattr(sys.modules.get(name), "__file__", None)
            if source is None or name.partition(".")[0] in (MAIN, "beam_pipeline"):
                continue
            sources[name] = source
    return sources
