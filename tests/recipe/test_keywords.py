"""The stub that tells type checkers and editors the keywords of ``record``.

It follows from the declared options. ``python -m tests.recipe.test_keywords`` writes it
again.
"""

from __future__ import annotations

from beam_pipeline import parameters
from beam_pipeline.recipe import recipe
from beam_pipeline.recipe.canonical import record_options
from beam_pipeline.recipe.recipe import Option
from tests.processes import ROOT

STUB = ROOT / "beam_pipeline" / "recipe" / "keywords.pyi"

HEAD = '''"""Keywords of ``record``, for type checkers and editors.

Written from the declared options by ``python -m tests.recipe.test_keywords``.
"""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict

from beam_pipeline.transforms.base import Transform

Names = str | Sequence[str]
Path = str | PathLike[str]
# An expression, a step, or several of them.
Steps = Any

class RecordKeywords(TypedDict, total=False):
'''

# Options whose values have a type of their own, or have other forms in Python alone.
TYPES = {
    "label_from": "str | Mapping[str, str]",
    "loader": "str | Callable[[str], Any]",
    "features": "Mapping[str, str | Transform]",
    "max_rejected": "int | str",
    "skip_recorded": "Path | Sequence[Path]",
    "work_dir": "Path",
}
TYPE_OF = {
    parameters.Flag: "bool",
    parameters.WholeNumber: "int",
    parameters.Bytes: "int | str",
    parameters.Number: "float",
    parameters.Text: "str",
    parameters.Names: "Names",
    recipe.Shares: "str | Mapping[str, float]",
    recipe.Steps: "Steps",
}


def literal(words: tuple[str, ...]) -> str:
    return f"Literal[{', '.join(repr(word) for word in words)}]".replace("'", '"')


def annotation(option: Option) -> str:
    """The type of what ``record`` takes for an option, as text."""
    values = option.values
    if option.name in TYPES:
        text = TYPES[option.name]
    elif isinstance(values, recipe.ByFeature):
        text = f"Mapping[str, {literal(getattr(values.texts, 'choices', ()))}]"
    elif isinstance(values, parameters.Choice):
        text = literal(values.choices)
    else:
        text = TYPE_OF[type(values)]
        if words := getattr(values, "words", ()):
            text = f"{text} | {literal(words)}"
    return f"{text} | None" if option.default is None else text


def stub() -> str:
    lines = []
    for option in record_options().values():
        for name in dict.fromkeys((option.name, option.singular)):
            lines.append(f"    {name}: {annotation(option)}\n")
    return HEAD + "".join(lines) + "    beam_args: Sequence[str]\n"


def test_the_stub_follows_from_the_options():
    assert STUB.read_text() == stub()


if __name__ == "__main__":
    STUB.write_text(stub())
