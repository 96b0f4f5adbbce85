"""One thread for linear algebra, while a step needs it."""

from __future__ import annotations

import threading
from typing import Any

from threadpoolctl import threadpool_limits


class OneThread:
    """Holds the libraries of linear algebra to one thread.

    Each core has a worker, and bytes must not depend on the number of threads. The last
    step of the process that ends restores the limits that the first one found.
    """

    _lock = threading.Lock()
    _steps = 0
    _limits: Any = None

    @classmethod
    def begin(cls) -> None:
        """Sets the limit, for the ``setup`` of a step."""
        with cls._lock:
            if cls._steps == 0:
                cls._limits = threadpool_limits(1)
            cls._steps += 1

    @classmethod
    def end(cls) -> None:
        """Ends what :meth:`begin` began, for the ``teardown`` of a step."""
        with cls._lock:
            cls._steps -= 1
            if cls._steps == 0:
                cls._limits.restore_original_limits()
