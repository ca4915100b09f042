"""Calls with a time limit: a worker thread makes the call, and is left behind where the call does not come back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast

from models.errors import EngineHungError

__all__ = ["Watchdog"]

T = TypeVar("T")


class _Job(Generic[T]):
    """One call and where its end is awaited."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.done: SimpleQueue[tuple[bool, object]] = SimpleQueue()


class Watchdog:
    """Workers that make calls for others. As many threads as calls run at once; they are kept for the next ones.

    Any number of threads may `call`. A worker whose call was given up ends when (if ever) the call does; the threads
    are daemons, so one that hangs in a driver does not keep the process alive.
    """

    def __init__(self, name: str = "engine") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[_Job[Any]]] = []
        self._workers = 0
        self._abandoned = 0

    @property
    def workers(self) -> int:
        """Threads there are, those left behind not counted."""
        with self._lock:
            return self._workers

    @property
    def abandoned(self) -> int:
        """Calls that were given up and have not come back."""
        with self._lock:
            return self._abandoned

    def call(self, work: Callable[[], T], limit_s: float) -> T:
        """The call's value, or what it raised; `EngineHungError` if it takes longer than `limit_s` seconds."""
        job: _Job[T] = _Job(work)
        self._worker().put(job)
        try:
            fine, value = job.done.get(timeout=limit_s)
        except Empty:
            with self._lock:
                # The worker answers and leaves under the same lock: it has done either both by now or neither.
                if job.done.empty():
                    job.done = SimpleQueue()
                    self._workers -= 1
                    self._abandoned += 1
                    raise EngineHungError(f"no answer within {limit_s:g} s") from None
            fine, value = job.done.get()
        if not fine:
            raise cast(BaseException, value)
        return cast(T, value)

    def _worker(self) -> SimpleQueue[_Job[Any]]:
        with self._lock:
            if self._idle:
                return self._idle.pop()
            self._workers += 1
        jobs: SimpleQueue[_Job[Any]] = SimpleQueue()
        threading.Thread(target=self._serve, args=(jobs,), name=f"{self._name}-run", daemon=True).start()
        return jobs

    def _serve(self, jobs: SimpleQueue[_Job[Any]]) -> None:
        while True:
            job = jobs.get()
            done = job.done
            result: tuple[bool, object]
            try:
                result = (True, job.work())
            except BaseException as error:  # noqa: BLE001 (handed on: it is raised in the caller's thread)
                result = (False, error)
            with self._lock:
                if job.done is not done:  # given up
                    self._abandoned -= 1
                    return
                self._idle.append(jobs)
                done.put(result)
            # Nothing of the last call lives on while the next one is waited for.
            del job, done, result
