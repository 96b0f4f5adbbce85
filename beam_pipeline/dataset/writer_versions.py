"""The versions of this package and of the libraries that decide bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from beam_pipeline.audio.av_library import LIBRARY, library_versions
from beam_pipeline.examples.spec import IMAGES
from beam_pipeline.recipe.example_sections import JAX, NUMPY
from beam_pipeline.recipe.recipe import Recipe

DISTRIBUTION = "audio-tfrecords"

# Libraries whose version may change the bytes of a shard.
_BYTE_DECIDING = ("numpy", "scipy", "soundfile", "soxr", "isal")
_DECIDES_IMAGES = "pillow"


def writer_versions(
    encodings: Iterable[str] = (), *, ffmpeg: bool = False, backend: str = NUMPY
) -> dict[str, str]:
    """Returns the versions of this package and of libraries that decide bytes.

    Parameters
    ----------
    encodings : iterable of str
        Encodings of features. Pillow is among the libraries only if one is an image.
    ffmpeg : bool
        Whether PyAV and ffmpeg are among them, because they decode a clip.
    backend : str
        What computes features; with JAX, its version and its device are among them.
    """
    images = (_DECIDES_IMAGES,) if {*IMAGES} & {*encodings} else ()
    versions = {"name": DISTRIBUTION}
    for name in (DISTRIBUTION, *_BYTE_DECIDING, *images):
        versions["version" if name == DISTRIBUTION else name] = _version(name)
    if ffmpeg:
        versions.update(library_versions())
    if backend == JAX:
        from beam_pipeline.transforms.xla import jax_versions

        versions.update(jax_versions())
    return versions


def version_differences(
    recorded: Mapping[str, str], recipe: Recipe
) -> Iterator[tuple[str, str | None, str | None]]:
    """Yields what a data set was recorded with that is another here, by name.

    Each comes with its version then and its version here; None: it did not take part.
    """
    here = writer_versions(
        recipe.features.encodings.values(),
        ffmpeg=LIBRARY in recorded,
        backend=recipe.features.backend,
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
