"""Keywords of ``record``, or a YAML file, become a recipe and the options of a run.

The recipe is canonical: so are its expressions, and a folder of sounds that an
augmentation names has its hash. So a run continues, and a data set is repeated, only
with the same sounds.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from beam_pipeline.arrays import FloatArray
from beam_pipeline.audio.clip_reader import ClipReader, output_frames, probe_audio
from beam_pipeline.audio.formats import is_audio_name
from beam_pipeline.errors import ClipError, InputError, OptionError, RecipeError
from beam_pipeline.recipe.recipe import (
    ALTERNATIVES,
    EVENT_MASK,
    SPLIT_OPTIONS,
    Events,
    Option,
    Recipe,
    RunOptions,
    named_options,
    options_of,
    recipe_options,
)
from beam_pipeline.storage import files
from beam_pipeline.text import bytes_sha256, json_sha256, shown
from beam_pipeline.transforms.steps import (
    AUGMENTATION,
    Kind,
    format_steps,
    format_transform,
    given_steps,
    naming_feature,
    naming_step,
    parse_steps,
    parse_transform,
)

# What stands for no value where an option may have none.
_NULLS = ("", "~", "null")


def read_recipe(path: str) -> dict[str, Any]:
    """Returns the options of the recipe in a file, by names in Python.

    Raises
    ------
    InputError
        If the file does not exist or cannot be parsed, or if a name is unknown or
        occurs twice.
    RecipeError
        If a value is of a type that its option cannot have.
    """
    location = files.absolute(path)
    if files.size(location) < 0:
        raise InputError(
            f"{path}: there is no such file, or it is a folder without metadata.json, "
            "which is no data set. Check `recipe`."
        )
    values = _load(files.read_bytes(location), path)
    if not isinstance(values, dict):
        raise InputError(
            f"{path} must hold a recipe: names of options with their values; got "
            f"{shown(values)}."
        )
    return _by_option(values, path)


def _load(text: bytes, path: str) -> Any:
    """Parses YAML, which includes JSON; texts, numbers and all else stay text.

    The type of an option parses them as the text of a flag. So ``no``, ``007`` and
    ``1:30`` are classes.
    """
    import yaml

    class Loader(yaml.BaseLoader):  # type: ignore[misc]
        """A loader that refuses a name that occurs twice."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            made, seen = super().construct_mapping(node, deep), set()
            for key, _ in node.value:
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        None, None, f"{key.value} occurs twice", key.start_mark
                    )
                seen.add(key.value)
            return made

    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{path}: not a recipe in YAML or JSON: {error}") from error
    except RecursionError as error:
        raise InputError(f"{path} is nested too deep for a recipe") from error


def _by_option(values: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns the checked values by the names of options, which may be those of flags.

    Only the recipe of a data set has options that no flag gives.
    """
    known = {n: o for n, o in recipe_options().items() if not o.is_carried}
    try:
        found = named_options(values, known)
    except OptionError as error:
        raise InputError(f"{path}: {error}") from error
    named: dict[str, Any] = {}
    for option, value in found:
        given = option.values.parse(value) if isinstance(value, str) else value
        if value in _NULLS and option.default is None:
            given = None
        try:
            if given is not None:
                given = option.values.json(option.values.value(option.name, given))
        except RecipeError as error:
            where, problem, got = error.args
            raise RecipeError(f"{path}: {where}", problem, got) from error.__cause__
        named[option.name] = given
    return named


# Options that decide the split of a group before any is moved.
_OF_HASH = (*SPLIT_OPTIONS, "group_by", "seed")

_Function = TypeVar("_Function", bound=Callable[..., Any])


def list_keywords(function: _Function) -> _Function:
    """Gives a function that takes ``**options`` the signature that lists them.

    ``help()`` shows it, and editors complete it.
    """
    signature = inspect.signature(function)
    *parameters, _ = signature.parameters.values()
    defaults = {name: option.default for name, option in record_options().items()}
    for name, default in {**defaults, "beam_args": ()}.items():
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(name, kind, default=default))
    changed = signature.replace(parameters=parameters)
    function.__signature__ = changed  # type: ignore[attr-defined]
    return function


def record_options() -> dict[str, Option]:
    """Maps names to the options that ``record`` takes."""
    known = (*recipe_options().values(), *options_of(RunOptions))
    return {option.name: option for option in known if not option.is_carried}


def split_options(
    recipe: Recipe | Mapping[str, Any] | None, options: Mapping[str, Any]
) -> tuple[Recipe, RunOptions]:
    """Splits keywords into the recipe, in its canonical form, and the run's options.

    Parameters
    ----------
    recipe : Recipe or mapping, optional
        What the options change, also as the options of a file. Its window, its splits
        and its shards give way to options that decide them in another way:
        ``win_len`` replaces ``win_seconds``.

    Raises
    ------
    OptionError
        If a keyword or its value is wrong.
    """
    if isinstance(recipe, Recipe):
        recipe = recipe.to_json()
    known, base = record_options(), recipe or {}
    options = dict(options)
    beam_args = options.pop("beam_args", ())
    given: Any = {option.name: v for option, v in named_options(options, known)}
    of_run = {n: given.pop(n) for n in [*given] if n not in recipe_options()}
    run = RunOptions(**of_run, beam_args=beam_args)
    if any(
        _held(n, given.get(n, base.get(n))) != _held(n, base.get(n)) for n in _OF_HASH
    ):
        given["split_moves"] = None  # they are those of another hash
    for ways in ALTERNATIVES:
        if any(given.get(name) is not None for name in ways):
            given = {**dict.fromkeys(ways), **given}
    if given.get("label_from") == "none":
        given.setdefault("classes", None)  # there are none
    return canonical_recipe(Recipe(**{**base, **given})), run


def _held(name: str, value: Any) -> Any:
    """Returns what a recipe holds for an option's value; None is the default."""
    option = recipe_options()[name]
    return option.default if value is None else option.values.value(name, value)


def canonical_recipe(recipe: Recipe) -> Recipe:
    """Returns the recipe with expressions in canonical form and features sorted.

    A final ``identity()`` without a dtype gets the recipe's, so that the expression
    alone says what is stored. A step that takes sounds from a folder gets their hash.

    Raises
    ------
    RecipeError
        If an expression cannot be read, a folder cannot be used, or an augmentation
        moves the sound away from a mask of its events.
    """
    canonical: Any = {}
    for text, kind in given_steps(recipe.to_json()):
        steps = parse_steps(text, kind)
        if kind is AUGMENTATION:
            _check_masks(recipe, steps)
        canonical[kind.field] = format_steps(with_hashes(steps, kind), kind)
    canonical["features"] = {}
    for name, text in sorted(recipe.features.items()):
        with naming_feature(name):
            transform = parse_transform(text, recipe.dtype)
            canonical["features"][name] = format_transform(transform)
    canonical["encodings"] = dict(sorted(recipe.encodings.items()))
    return recipe.replace(**canonical)


def _check_masks(events: Events, steps: Sequence[Any]) -> None:
    masks = [target for target in events.event_targets if target.startswith(EVENT_MASK)]
    moving = [step for step in steps if getattr(step, "moves_time", False)]
    if masks and moving:
        raise RecipeError(
            "event_targets",
            f"has a mask for each frame, but {moving[0]} moves the audio to other "
            "frames; leave this step out of `augment`",
            masks[0],
        )


# Folders of sounds that augmentations name


def with_hashes(steps: Iterable[Any], kind: Kind) -> Iterator[Any]:
    """Yields the steps; those that name a folder of sounds have its hash.

    Raises
    ------
    RecipeError
        If a folder has no audio, cannot be read, or has another hash than the step.
    """
    for step in steps:
        if hasattr(step, "with_sounds"):
            with naming_step(step, kind):
                step = replace(step, sha256=checked_hash(step.folder, step.sha256))
        yield step


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
        names = [*filter(is_audio_name, files.list_files(root))]
    except (InputError, OSError) as error:
        raise RecipeError("folder", f"cannot be listed ({error})", folder) from error
    if not names:
        problem = "has no audio files; name a folder of sounds"
        raise RecipeError("folder", problem, folder)
    return [(name, files.join(root, name)) for name in names]


def hash_sounds(folder: str) -> str:
    """Returns the SHA-256 of the names and contents of a folder's audio files.

    Raises
    ------
    RecipeError
        See :func:`list_sounds`.
    """
    hashes = {
        name: bytes_sha256(files.read_bytes(path)) for name, path in list_sounds(folder)
    }
    return json_sha256(hashes)


def checked_hash(folder: str, recorded: str) -> str:
    """Returns a folder's hash; RecipeError if a recipe has another one of it."""
    found = hash_sounds(folder)
    if recorded and recorded != found:
        raise RecipeError(
            "sha256",
            f"is not that of the sounds in {folder}, which is {found}; give the folder "
            "the files back that it had when the recipe was recorded, or leave sha256 "
            "out to take those that it has now",
            recorded,
        )
    return found


def load_step(step: Any, sample_rate_hz: int) -> Any:
    """Returns a step with the sounds of its folder; other steps as they are.

    Raises
    ------
    RecipeError
        See :func:`load_sounds`.
    """
    if not hasattr(step, "with_sounds"):
        return step
    return step.with_sounds(load_sounds(step.folder, step.sha256, sample_rate_hz))


@functools.lru_cache(maxsize=16)
def load_sounds(
    folder: str, sha256: str, sample_rate_hz: int
) -> tuple[FloatArray, ...]:
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
        checked_hash(folder, sha256)
    sounds: list[FloatArray] = []
    for name, path in list_sounds(folder):
        try:
            sound = _decode(name, path, sample_rate_hz)
        except ClipError as error:
            raise RecipeError(
                "folder", f"has a file that cannot be used: {error}", folder
            ) from error
        if not sound.any():
            raise RecipeError("folder", f"has a file that is silent: {name}", folder)
        sounds.append(sound)
    return tuple(sounds)


def _decode(name: str, path: str, sample_rate_hz: int) -> FloatArray:
    with files.closing(files.begin_read(path)) as source:
        info = probe_audio(source, name=name)
        with ClipReader(
            source, info, name=name, sample_rate_hz=sample_rate_hz
        ) as reader:
            frames = output_frames(info.frames, info.sample_rate_hz, sample_rate_hz)
            return reader.read(0, frames)
