"""What decides bytes beside the recipe: versions of libraries, and code of users."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from beam_pipeline.audio.formats import LIBRARY, library_versions
from beam_pipeline.dataset.metadata import DISTRIBUTION
from beam_pipeline.examples.spec import IMAGES
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.transforms.own_code import MAIN
from beam_pipeline.transforms.steps import TRANSFORM, given_steps, parse_steps

# Libraries whose version may change the bytes of a shard.
_BYTE_DECIDING = ("numpy", "scipy", "soundfile", "soxr", "isal")
_DECIDES_IMAGES = "pillow"


def writer_versions(
    encodings: Iterable[str] = (), *, ffmpeg: bool = False
) -> dict[str, str]:
    """Returns the versions of this package and of libraries that decide bytes.

    Parameters
    ----------
    encodings : iterable of str
        Encodings of features. Pillow is among the libraries only if one is an image.
    ffmpeg : bool
        Whether PyAV and ffmpeg are among them, because they decode a clip.
    """
    images = (_DECIDES_IMAGES,) if {*IMAGES} & {*encodings} else ()
    versions = {"name": DISTRIBUTION}
    for name in (DISTRIBUTION, *_BYTE_DECIDING, *images):
        versions["version" if name == DISTRIBUTION else name] = _version(name)
    if ffmpeg:
        versions.update(library_versions())
    return versions


def version_differences(
    recorded: Mapping[str, str], recipe: Recipe
) -> Iterator[tuple[str, str | None, str | None]]:
    """Yields what a data set was recorded with that is another here, by name.

    Each comes with its version then and its version here; None: it did not take part.
    """
    here = writer_versions(
        recipe.encodings.values(),
        ffmpeg=LIBRARY in recorded,
    )
    for name in sorted({*recorded, *here}):
        before, now = recorded.get(name), here.get(name)
        if before != now:
            yield name, before, now


@cache
def _version(name: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


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
