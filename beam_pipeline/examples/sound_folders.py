"""Loads the sounds that augmentations take from folders, once in each process."""

from __future__ import annotations

import functools
from typing import Any

from beam_pipeline.audio.clip_reader import ClipReader, output_frames
from beam_pipeline.audio.probe import probe_audio
from beam_pipeline.errors import ClipError, RecipeError
from beam_pipeline.recipe.canonical import (
    check_hash,
    hash_sounds,
    list_sounds,
    takes_sounds,
)
from beam_pipeline.storage import files
from beam_pipeline.transforms.augment import Sound

# The samples of a folder, decoded, in each process.
MOST_BYTES = 1 << 30


def load_step(step: Any, sample_rate_hz: int) -> Any:
    """Returns a step with the sounds of its folder; other steps as they are.

    Raises
    ------
    RecipeError
        See :func:`load_sounds`.
    """
    if not takes_sounds(step):
        return step
    return step.with_sounds(load_sounds(step.folder, step.sha256, sample_rate_hz))


@functools.lru_cache(maxsize=16)
def load_sounds(folder: str, sha256: str, sample_rate_hz: int) -> tuple[Sound, ...]:
    """Decodes the audio files below a folder, mixed to mono, in the order of names.

    Parameters
    ----------
    sha256 : str
        The hash of the folder that the recipe has; empty if it is not known.
    sample_rate_hz : int
        The rate that the sounds are resampled to.

    Raises
    ------
    RecipeError
        If the folder has no audio file, or other ones than the recipe says; if a file
        cannot be decoded, or is silent; or if the sounds take too much memory.
    """
    if sha256:
        check_hash(folder, sha256, hash_sounds(folder))
    sounds: list[Sound] = []
    for name, path in list_sounds(folder):
        try:
            sound = _decode(name, path, sample_rate_hz)
        except ClipError as error:
            raise RecipeError(
                "folder", f"has a file that cannot be used: {error}", folder
            ) from error
        if not sound.samples.any():
            raise RecipeError("folder", f"has a file that is silent: {name}", folder)
        sounds.append(sound)
        held = sum(each.samples.nbytes for each in sounds)
        if held > MOST_BYTES:
            raise RecipeError(
                "folder",
                f"holds sounds that take more than {MOST_BYTES} bytes of memory at "
                f"{sample_rate_hz} Hz; name a folder with fewer or shorter ones",
                folder,
            )
    return tuple(sounds)


def _decode(name: str, path: str, sample_rate_hz: int) -> Sound:
    with files.closing(files.begin_read(path)) as source:
        info = probe_audio(source, name=name)
        with ClipReader(
            source, info, name=name, sample_rate_hz=sample_rate_hz
        ) as reader:
            frames = output_frames(info.frames, info.sample_rate_hz, sample_rate_hz)
            return Sound(name, reader.read(0, frames))
