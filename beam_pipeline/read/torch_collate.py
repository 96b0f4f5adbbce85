"""How ``torch.utils.data.DataLoader`` makes a batch of examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_pipeline.errors import InputError

_HINT = (
    "records.to_torch(...) takes all features. Or choose others with "
    "open_records(features=...), or give the loader a collate_fn."
)

Collate = Callable[..., Any]


def collate_with(collate: Collate) -> Collate:
    """Returns the function for PyTorch's table of them, by the type of an example.

    Parameters
    ----------
    collate : function
        ``torch.utils.data._utils.collate.collate``.
    """

    def collate_examples(
        batch: Sequence[Mapping[str, Any]], *, collate_fn_map: Any = None
    ) -> dict[str, Any]:
        """Returns a dict of the batches of each feature.

        Raises
        ------
        InputError
            If some examples lack a feature, or PyTorch has no tensor of its values.
        """
        names = dict.fromkeys(name for example in batch for name in example)
        made = {}
        for name in names:
            values = [example[name] for example in batch if name in example]
            if len(values) < len(batch):
                raise InputError(
                    f"DataLoader cannot make a batch of the feature {name}, because "
                    f"{len(batch) - len(values)} of {len(batch)} examples lack it. "
                    f"{_HINT}"
                )
            try:
                made[name] = collate(values, collate_fn_map=collate_fn_map)
            except (TypeError, ValueError, RuntimeError) as error:
                raise InputError(
                    f"DataLoader cannot make a tensor of the feature {name}: {error}. "
                    f"{_HINT}"
                ) from error
        return made

    return collate_examples
