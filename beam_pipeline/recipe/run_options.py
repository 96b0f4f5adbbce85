"""The options of a run: they say how the job runs, and are not in the recipe.

Those of a recipe are in :mod:`.recipe`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from beam_pipeline.errors import OptionError
from beam_pipeline.parameters import Declared, Flag, Number, ValueType, WholeNumber
from beam_pipeline.recipe.declare import option

if TYPE_CHECKING:
    from beam_pipeline.storage.files import PathLike

_SECRET = re.compile("secret|password|token|access_key", re.IGNORECASE)
# In JSON, such as that of --environment_config.
_SECRET_KEY = re.compile(f'"[^"]*({_SECRET.pattern})[^"]*"\\s*:', re.IGNORECASE)


class RunOptions(Declared):
    """How the job runs.

    These options are not in the recipe. Options of Beam follow a lone --.

    Attributes
    ----------
    max_rejected
        Largest number or percentage of clips that may be rejected: 5 or 1%.
    allow_unreadable
        Reject clips that the disk or the network fails to read, for example because of
        a dead sector, instead of failing until they can be read.
    overwrite
        Replace the data set in the output folder.
    skip_recorded
        Leave out clips that the data set in this folder holds, and try again those that
        it rejected; may be repeated.
    workers
        Processes on this machine. Default: one for each core, if the job is large.
    work_dir
        Folder for unfinished shards. Default: _work in the output folder.
    time_limit
        Reject a clip if a step takes longer for one block of it. Default: 600 seconds.
    beam_args : sequence of str
        Options of Beam. They must contain ``--runner``, which runs the job.

    Raises
    ------
    OptionError
        If a value is out of its range, or ``beam_args`` has no runner or has a secret.
    """

    max_rejected: int | str = option(0, ValueType(), "N|P%")
    allow_unreadable: bool = option(False, Flag())
    overwrite: bool = option(False, Flag())
    skip_recorded: PathLike | Sequence[PathLike] = option(
        (), ValueType(), "DIR", repeats=True
    )
    workers: int | None = option(None, WholeNumber(), "N")
    work_dir: PathLike | None = option(None, ValueType(), "DIR")
    time_limit: float | None = option(
        None, Number(is_positive=True, unit="seconds"), "SECONDS"
    )
    beam_args: Sequence[str] = ()

    def check(self) -> None:
        """Checks the limit on rejects, and options that depend on Beam's."""
        allowed_rejects(str(self.max_rejected), 0)
        if not isinstance(self.beam_args, list | tuple):
            raise OptionError("beam_args", "must be a list of texts", self.beam_args)
        if self.beam_args and not self.has_runner():
            raise OptionError(
                "options of Beam", "must include `--runner`", self.beam_args
            )
        for text in self.beam_args:
            name = text.partition("=")[0]
            is_name = name.startswith("-") and _SECRET.search(name)
            if is_name or _SECRET_KEY.search(text):
                # The value stays out of the error, which is logged.
                raise OptionError(
                    "options of Beam",
                    "must not contain a secret, because the job and its logs would "
                    "show it; set the secret in the environment of the workers, for "
                    "example as AWS_SECRET_ACCESS_KEY",
                    name,
                )

    def has_runner(self) -> bool:
        """Whether a runner of Beam runs the job, instead of this machine."""
        return beam_option(self.beam_args, "--runner") is not None

    def is_template(self) -> bool:
        """Whether the job is only described; a service starts it later."""
        return beam_option(self.beam_args, "--template_location") is not None


def beam_option(beam_args: Sequence[str], name: str) -> str | None:
    """Returns the value of an option of Beam: ``--name=value`` or ``--name value``."""
    for word, following in pairwise([*beam_args, ""]):
        key, equals, value = word.partition("=")
        if key == name:
            return value if equals else following
    return None


def allowed_rejects(max_rejected: str, clips: int) -> int:
    """Returns how many of the clips may be rejected: ``5``, or ``2.5%`` of them.

    Raises
    ------
    OptionError
        If the text is neither a number nor a percentage.
    """
    text = max_rejected.strip()
    share, most = (text[:-1], 100.0) if text.endswith("%") else ("", math.inf)
    try:
        value = float(share) if share else int(text)
    except ValueError:
        value = -1
    if not 0 <= value <= most:
        problem = "must be a number of clips from 0 on, or a percentage from 0% to 100%"
        raise OptionError("max_rejected", problem, max_rejected)
    # Rounding may leave a share of whole clips a little below their number.
    return int(value / 100 * clips + 1e-9) if isinstance(value, float) else value
