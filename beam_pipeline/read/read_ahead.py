"""Reads batches ahead with threads, in order and within a limit of bytes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from beam_pipeline.errors import InputError
from beam_pipeline.freed_memory import keep_freed_memory

Batch = dict[str, Any]
Task = Callable[[], Any]
Submit = Callable[..., "Future[Any]"]


class Inline:
    """Runs a task where it is submitted, for reading without threads."""

    def submit(self, task: Task, *args: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(task(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def shutdown(self, wait: bool, cancel_futures: bool) -> None:
        pass


def read_ahead(
    plan: Callable[[Submit], Iterator[Task]],
    threads: int,
    limit: int,
    size: int,
) -> Generator[Batch, None, None]:
    """Yields the batches of a plan in its order, and reads the next ones meanwhile.

    Threads start with the first batch, in the process that iterates. They end when the
    iterator is exhausted, closed or collected, or raises. An error of a task is raised
    where its batch would be.

    Parameters
    ----------
    plan : function
        Takes a function that submits parts of batches to the threads, and returns the
        tasks that return batches. A task may wait for parts submitted before it.
    threads : int
        0: the tasks run in the caller, one at a time.
    limit : int
        About how many bytes of batches are held ahead. One batch is always read ahead.
    size : int
        About how many bytes a batch takes; the largest that was read counts, once
        there is one.
    """
    keep_freed_memory()  # batches are freed where the next ones are made
    # A pool without threads of its own also starts none after a fork.
    pool: Any = ThreadPoolExecutor(threads, "batches") if threads else Inline()
    process = os.getpid()
    waiting: deque[Future[Batch]] = deque()
    largest = 0
    try:
        tasks = plan(pool.submit)
        while True:
            fitting = limit // max(largest or size, 1)
            most = max(min(2 * threads, fitting), 1)
            while len(waiting) < most:
                task = next(tasks, None)
                if task is None:
                    break
                waiting.append(pool.submit(task))
            if not waiting:
                return
            batch = waiting.popleft().result()
            largest = max(largest, batch_bytes(batch))
            yield batch
            del batch
            if os.getpid() != process:
                raise InputError(
                    "The iteration began in another process, whose threads this one "
                    "does not have. Iterate over the batches anew, in this process."
                )
    finally:
        if os.getpid() == process:
            pool.shutdown(wait=False, cancel_futures=True)


def batch_bytes(batch: Mapping[str, Any]) -> int:
    """Returns about how many bytes of memory a batch takes."""
    return sum(_bytes(values) for values in batch.values())


def _bytes(values: Any) -> int:
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values.nbytes
    return sum(
        value.nbytes if isinstance(value, np.ndarray) else 64 for value in values
    )
