"""Threads of sound ahead of all others: by right, by RealtimeKit, or as usual and said so."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator

import pytest

from appliance.audio import realtime
from appliance.audio.realtime import PRIORITY, RUN_LIMIT_US, Scheduling, may_be_realtime, move_with, raise_thread


@pytest.fixture
def waiting() -> Iterator[int]:
    """A thread that waits: its native id."""
    ids: list[int] = []
    known, end = threading.Event(), threading.Event()

    def wait() -> None:
        ids.append(threading.get_native_id())
        known.set()
        end.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    known.wait()
    yield ids[0]
    end.set()
    thread.join()


@pytest.fixture
def limits() -> Iterator[None]:
    """The process's own limit afterwards as it was before."""
    before = resource.getrlimit(resource.RLIMIT_RTTIME)
    realtime._limit_runs.cache_clear()
    yield
    resource.setrlimit(resource.RLIMIT_RTTIME, before)
    realtime._limit_runs.cache_clear()


def test_the_answer_is_what_the_kernel_has(waiting: int, limits: None) -> None:
    """Whatever this machine allows: root and users both pass, and see different things."""
    found = raise_thread(waiting)
    scheduled = os.sched_getscheduler(waiting)
    if found.how == "usual":
        assert scheduled == os.SCHED_OTHER
        assert found.reason
    else:
        assert scheduled == os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        assert os.sched_getparam(waiting).sched_priority == PRIORITY
        assert 0 < resource.getrlimit(resource.RLIMIT_RTTIME)[0] <= RUN_LIMIT_US
    assert os.sched_getscheduler(0) == os.SCHED_OTHER, "only the thread that was meant"


def test_trying_tells_what_a_thread_of_sound_would_get_and_leaves_none_behind(waiting: int, limits: None) -> None:
    before = threading.active_count()
    assert may_be_realtime().how == raise_thread(waiting).how
    assert threading.active_count() == before
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_without_the_right_and_without_a_bus_it_says_so(
    waiting: int, limits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_setscheduler", _refused)
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere/to/be/found")
    found = raise_thread(waiting)
    assert found.how == "usual"
    assert "RealtimeKit cannot be asked" in str(found)


def test_a_thread_that_has_ended_is_no_fault(limits: None) -> None:
    assert raise_thread(2**22 + 1).how == "usual"  # beyond what Linux counts to


@pytest.mark.parametrize("why", [None, "it was given core 0"])
def test_a_raised_thread_goes_to_its_cores_first_and_is_raised_wherever_it_is(
    waiting: int, limits: None, why: str | None
) -> None:
    before, moved = raise_thread(waiting), []

    def mover(thread_id: int) -> str | None:
        moved.append((thread_id, os.sched_getscheduler(waiting)))
        return why

    os.sched_setscheduler(waiting, os.SCHED_OTHER, os.sched_param(0))
    move_with(mover)
    try:
        assert raise_thread(waiting).how == before.how
    finally:
        move_with(None)
    assert moved == [(waiting, os.SCHED_OTHER)]
    raise_thread(waiting)
    assert len(moved) == 1


def test_it_reads_well() -> None:
    assert str(Scheduling("fifo")) == "SCHED_FIFO 10"
    assert str(Scheduling("rtkit")) == "SCHED_FIFO 10 (RealtimeKit)"
    assert str(Scheduling("usual", "why")) == "usual scheduling: why"


def _refused(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")
