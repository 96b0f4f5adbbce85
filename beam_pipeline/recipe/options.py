"""Options of a run: how the job runs. They decide no byte of the data set."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from beam_pipeline.errors import OptionError
from beam_pipeline.parameters import Declared, Flag, Number, ValueType, WholeNumber
from beam_pipeline.recipe.fields import option
from beam_pipeline.recipe.values import allowed_rejects

if TYPE_CHECKING:
    from beam_pipeline.storage.files import PathLike

_SECRET = re.compile("secret|password|token|access_key", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class RunOptions(Declared):
    """How the job runs.

    Attributes
    ----------
    max_rejected : int or str
        Largest number or percentage of clips that may be rejected: ``5`` or ``"1%"``.
    allow_unreadable : bool
        Reject clips that the machine cannot read, for example because of a dead sector,
        instead of failing until it can.
    overwrite : bool
        Replace the data set that is in the output folder.
    skip_recorded : path or sequence of paths
        Folders of data sets: clips that they hold are left out, and clips that they
        have rejected are tried again.
    workers : int, optional
        Processes on this machine. Default: one for each core, if the job is large.
    work_dir : path, optional
        Folder for unfinished shards. Default: ``_work`` in the output folder.
    time_limit : float, optional
        Seconds after which a step that works on one block of a clip is stuck, and the
        clip is rejected. Default: 600.
    beam_args : sequence of str
        Options of Beam. They must contain ``--runner``, which runs the job.

    Raises
    ------
    OptionError
        If a value is out of its range, or ``beam_args`` has no runner or has a secret.
    """

    max_rejected: int | str = option(
        0,
        ValueType(),
        "largest number or percentage of clips that may be rejected",
        "N|P%",
    )
    allow_unreadable: bool = option(
        False, Flag(), "reject clips that the disk or the network fails to read"
    )
    overwrite: bool = option(False, Flag(), "replace the data set in the output folder")
    skip_recorded: PathLike | Sequence[PathLike] = option(
        (),
        ValueType(),
        "leave out clips that the data set in this folder holds, and try again those "
        "that it rejected; may be repeated",
        "DIR",
    )
    workers: int | None = option(
        None,
        WholeNumber(),
        "processes on this machine; default: one for each core, if the job is large",
        "N",
    )
    work_dir: PathLike | None = option(
        None,
        ValueType(),
        "folder for unfinished shards; default: _work in the output folder",
        "DIR",
    )
    time_limit: float | None = option(
        None,
        Number(is_positive=True, unit="seconds"),
        "reject a clip if a step takes longer for one block of it; default: 600",
        "SECONDS",
    )
    beam_args: Sequence[str] = ()

    def check(self) -> None:
        """Checks the limit on rejects, and options that depend on Beam's."""
        allowed_rejects(str(self.max_rejected), 0)
        if self.skip_recorded and self.is_template():
            raise OptionError(
                "skip_recorded",
                "cannot be given with `--template_location`, because the data set may "
                "change before the job is started",
                self.skip_recorded,
            )
        limit = self.time_limit
        if limit is not None and self.beam_args:
            raise OptionError(
                "time_limit",
                "works only on this machine, not with `--runner`; leave it out",
                limit,
            )
        if self.beam_args and not self.has_runner():
            raise OptionError(
                "options of Beam", "must include `--runner`", self.beam_args
            )
        for text in self.beam_args:
            name = text.partition("=")[0]
            if _SECRET.search(name):
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
        return self.has("--runner")

    def is_template(self) -> bool:
        """Whether the job is only described; a service starts it later."""
        return self.has("--template_location")

    def has(self, name: str) -> bool:
        """Whether an option of Beam is given."""
        return any(text.partition("=")[0] == name for text in self.beam_args)
