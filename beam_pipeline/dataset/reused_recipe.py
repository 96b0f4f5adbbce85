"""The recipe of a data set for other data, and such a recipe beside the recorded one.

A run finds out what its recipe leaves open: the classes, and which groups are not in
the split of their hash. The recorded recipe keeps the groups. The classes are beside it
in the metadata.
"""

from __future__ import annotations

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.side_by_side import recipe_json
from beam_pipeline.errors import InputError
from beam_pipeline.recipe.recipe import Recipe


def reused_recipe(metadata: Metadata, label_from: object = None) -> Recipe:
    """Returns a data set's recipe with its classes, so that targets mean the same.

    Parameters
    ----------
    label_from : str, optional
        What takes the place of the recorded option; with ``none`` there are no classes.

    Raises
    ------
    InputError
        If the data set was not recorded from audio files.
    """
    recipe = metadata.recipe
    if recipe is None and recipe_json(metadata):
        recipe = Recipe(**recipe_json(metadata))  # it was converted
    if recipe is None:
        raise InputError(
            "`recipe`: this data set was not recorded from audio files, so it has no "
            "recipe."
        )
    if label_from == "none":
        return recipe.replace(classes=None)
    if recipe.labels.classes is not None or not metadata.classes:
        return recipe
    return recipe.replace(classes=list(metadata.classes))


def as_recorded(asked: Recipe, metadata: Metadata) -> Recipe:
    """Returns a recipe as the data set has it, where both lead to the same examples.

    A recipe that leaves the splits open may lead to the recorded ones. A recipe with
    the classes that the data set has found is the one that found them.
    """
    recorded = metadata.recipe
    assert recorded is not None
    if not asked.splits.are_decided():
        asked = asked.replace(split_moves=recorded.splits.moves)
    if recorded.labels.classes is None and asked.labels.classes == metadata.classes:
        asked = asked.replace(classes=None)
    return asked
