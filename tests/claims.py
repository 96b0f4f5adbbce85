"""Claims of others on an output, and jobs that start there."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from beam_pipeline.dataset.job import Asked, Case, Job, case_of, job_stamp, look_at
from beam_pipeline.dataset.job import start as start_job
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import UNCLAIMED, Owner


def start(output: str, recipe: Recipe) -> Case:
    """Starts a job without inputs in an output; returns its case."""
    work = files.join(output, "_work")
    asked = Asked(output, work, job_stamp(Job((), output, work, recipe)), False)
    found = look_at(output, work)
    case = case_of(found, asked)
    start_job(case, found, asked, UNCLAIMED)
    return case


def write_claim(output: str | os.PathLike[str], number: int = 1, **owner: Any) -> str:
    """Writes a claim as another owner than this process would; returns its path."""
    path = files.join(os.fspath(output), "_work", "claims", str(number))
    content = replace(Owner.here(), **owner).to_bytes()
    if files.is_local(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    files.write_bytes(path, content)
    return path
