"""Folders of sounds that augmentations name: their files, and a hash of them.

The hash is part of the recipe. So a run continues, and a data set is repeated or
appended to, only with the same sounds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from beam_pipeline.audio.formats import is_audio_name
from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.hashing import json_sha256
from beam_pipeline.storage import files
from beam_pipeline.transforms.steps import Kind, naming_step

_PIECE = 1 << 20


def with_hashes(steps: Iterable[Any], kind: Kind) -> Iterator[Any]:
    """Yields the steps; those that name a folder of sounds have its hash.

    Raises
    ------
    RecipeError
        If a folder has no audio, cannot be read, or has another hash than the step.
    """
    for step in steps:
        if takes_sounds(step):
            with naming_step(step, kind):
                check_hash(step.folder, step.sha256, found := hash_sounds(step.folder))
            step = replace(step, sha256=found)
        yield step


def takes_sounds(step: Any) -> bool:
    """Whether a step takes sounds from its folder."""
    return hasattr(step, "with_sounds")


def list_sounds(folder: str) -> list[tuple[str, str]]:
    """Returns the name and the path of each audio file below a folder, by name.

    Raises
    ------
    RecipeError
        If there is none, or the folder does not exist or cannot be listed.
    """
    try:
        root = files.absolute(folder)
        if not files.is_folder(root):
            raise RecipeError("folder", f"there is no folder {root}", folder)
        names = filter(is_audio_name, files.list_files(root))
        found = [(name, files.join(root, name)) for name in names]
    except (InputError, OSError) as error:
        raise RecipeError("folder", f"cannot be listed ({error})", folder) from error
    if not found:
        raise RecipeError(
            "folder", "has no audio files; name a folder of sounds", folder
        )
    return found


def hash_sounds(folder: str) -> str:
    """Returns the SHA-256 of the names and contents of a folder's audio files.

    Raises
    ------
    RecipeError
        See :func:`list_sounds`; also if a file cannot be read.
    """
    return json_sha256(
        {name: _hash_file(path, folder) for name, path in list_sounds(folder)}
    )


def check_hash(folder: str, recorded: str, found: str) -> None:
    """Raises RecipeError if a recipe has another hash of a folder."""
    if recorded and recorded != found:
        raise RecipeError(
            "sha256",
            f"is not that of the sounds in {folder}, which is {found}; give the folder "
            "the files back that it had when the recipe was recorded, or leave sha256 "
            "out to take those that it has now",
            recorded,
        )


def _hash_file(path: str, folder: str) -> str:
    digest = hashlib.sha256()
    try:
        with files.open_read(path) as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    except (InputError, OSError) as error:
        raise RecipeError(
            "folder", f"has a file that cannot be read: {path} ({error})", folder
        ) from error
    return digest.hexdigest()
