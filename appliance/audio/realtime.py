"""Sound's own threads ahead of all others (SCHED_FIFO), where this machine allows it, and on cores of their own, where
it has slow ones.

A right of the process is tried first (systemd's `LimitRTPRIO`, a user's limit, root), then RealtimeKit, the service
that desktops have for it. Where neither allows it the threads run as others do: larger blocks then make up for the
waits.
"""

from __future__ import annotations

import logging
import os
import resource
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

__all__ = ["PRIORITY", "Mover", "Scheduling", "may_be_realtime", "move_with", "raise_thread"]

_LOG = logging.getLogger(__name__)

PRIORITY: Final = 10
"""Of 1..99: below the kernel's own (50) and a sound server's (RealtimeKit's most is 20)."""
RUN_LIMIT_US: Final = 200_000
"""A thread of ours that ran so long without a rest would hold up the machine: the kernel then ends the process.
RealtimeKit demands a limit of at most this."""
_RTKIT: Final = "org.freedesktop.RealtimeKit1"
_TIMEOUT_S: Final = 1.0

Mover = Callable[[int], str | None]
"""Puts a thread (its native id) on the cores that are meant for it; what is returned is why not. Never raises."""

_movers: list[Mover] = []


@dataclass(frozen=True, slots=True)
class Scheduling:
    """How a thread is scheduled."""

    how: Literal["fifo", "rtkit", "usual"]
    """By the process's own right, by RealtimeKit, or as any other thread."""
    reason: str = ""
    """Why it is usual."""

    def __str__(self) -> str:
        if self.how == "usual":
            return f"usual scheduling: {self.reason}"
        return f"SCHED_FIFO {PRIORITY}{' (RealtimeKit)' if self.how == 'rtkit' else ''}"


def raise_thread(thread_id: int) -> Scheduling:
    """Put a thread of this process (its native id) ahead of all others. May wait a second for RealtimeKit: never from
    a callback. What it starts (programs, threads) runs as usual again."""
    for mover in _movers:
        if (why := mover(thread_id)) is not None:
            _LOG.info("a thread of sound stays where it is: %s", why)
    try:
        os.sched_setscheduler(thread_id, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(PRIORITY))
    except PermissionError:
        return _ask_rtkit(thread_id)
    except (OSError, AttributeError) as error:  # the thread has ended; a system without it
        return Scheduling("usual", str(error))
    _limit_runs()
    return Scheduling("fifo")


def move_with(mover: Mover | None) -> None:
    """Where threads that are raised from now on are to run; None: anywhere. One for the process, as the plan is."""
    _movers[:] = [] if mover is None else [mover]


def may_be_realtime() -> Scheduling:
    """What `raise_thread` would come to here: tried on a thread that does nothing else."""
    found: list[Scheduling] = []
    thread = threading.Thread(target=lambda: found.append(raise_thread(threading.get_native_id())), name="scheduling")
    thread.start()
    thread.join()
    return found[0]


def _ask_rtkit(thread_id: int) -> Scheduling:
    why = "this process may not (RLIMIT_RTPRIO is 0)"
    try:
        from jeepney import DBusAddress, MessageType, new_method_call
        from jeepney.io.blocking import open_dbus_connection

        _limit_runs()
        with open_dbus_connection(bus="SYSTEM") as connection:
            kit = DBusAddress("/org/freedesktop/RealtimeKit1", bus_name=_RTKIT, interface=_RTKIT)
            call = new_method_call(kit, "MakeThreadRealtime", "tu", (thread_id, PRIORITY))
            answer = connection.send_and_get_reply(call, timeout=_TIMEOUT_S)
    except Exception as error:  # noqa: BLE001 - no bus, no service, no answer: each library's and system's own error
        _LOG.debug("RealtimeKit: %s: %s", type(error).__name__, error)
        return Scheduling("usual", f"{why}, and RealtimeKit cannot be asked")
    if answer.header.message_type is MessageType.error:
        told = f"{answer.body[0]}" if answer.body else "no reason given"
        return Scheduling("usual", f"{why}, and RealtimeKit refused: {told}")
    return Scheduling("rtkit")


@lru_cache(maxsize=1)
def _limit_runs() -> None:
    """Once a process; a stricter limit stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
    most = RUN_LIMIT_US if hard == resource.RLIM_INFINITY else min(RUN_LIMIT_US, hard)
    if soft == resource.RLIM_INFINITY or soft > most:
        resource.setrlimit(resource.RLIMIT_RTTIME, (most, hard))
