"""Keeps a device's stream open: opens it, notices that it failed, stalled or was unplugged, and opens it again.

One thread a device; everything that may hang (opening, closing, a sound server that does not answer) hangs there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, Protocol

from appliance.audio.devices import Kind
from appliance.audio.landscape import card_is_there, landscape
from appliance.audio.portaudio import StreamFormat
from appliance.audio.pulse import PulseWatch, pulse_devices
from appliance.audio.realtime import raise_thread
from appliance.audio.spsc import Doorbell
from appliance.errors import ApplianceError

__all__ = ["DeviceState", "Keeper", "OpenStream", "StateListener", "Tasks"]

_LOG = logging.getLogger(__name__)

STALL_S: Final = 1.0
"""No block for this long: the device is gone, whatever its driver says."""
FIRST_BLOCK_S: Final = 3.0
"""A sound server that sleeps was measured to give its first block 2 s late."""
BACK_OFF_S: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
"""Waits between tries to open; the last one goes on for as long as it takes, or until a card or a server comes."""
CLOSE_WAIT_S: Final = 3.0
MAX_BAD_RESTS: Final = 2
"""A device that could not be stopped, or started again, so often in a row is left running: else it would be lost and
opened again for ever."""


class OpenStream(Protocol):
    """What is kept open (`PortAudioStream`)."""

    format: StreamFormat
    last_block_s: float
    thread_id: int
    fault: str | None
    gone: bool
    resting: bool
    latency_s: float

    def rest(self) -> None:
        """Stop its callbacks. Raises `ApplianceError`."""
        ...

    def resume(self) -> None:
        """Let them come again. Raises `ApplianceError`."""
        ...

    def alive(self) -> bool:
        """False once it has ended by itself."""
        ...

    def close(self) -> bool:
        """End it; False if that hangs."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A device began to work, was lost, or was closed by us."""

    kind: Kind
    name: str
    phase: Literal["running", "lost", "closed"]
    reason: str
    """Why it was lost; empty otherwise."""
    time_s: float
    """Monotonic."""


StateListener = Callable[[DeviceState], None]
"""Called on the keeper's thread; must return at once and must not raise."""


class Tasks(Protocol):
    """What a keeper does for its owner; all on the keeper's thread."""

    def open(self) -> OpenStream:
        """Open and start the stream. Raises `ApplianceError`."""
        ...

    def serve(self) -> float:
        """The doorbell rang, or the time it asked for last is over: do what there is to do; seconds until the next."""
        ...

    def serve_lost(self) -> float:
        """As `serve`, while there is no stream."""
        ...

    @property
    def wanted(self) -> bool:
        """Whether there is anything to do for the stream: else it may rest."""
        ...

    def resumed(self) -> None:
        """The stream is about to go on after a rest: its clock begins anew."""
        ...

    @property
    def opened_name(self) -> str:
        """Stable name of what was opened; valid after `open`."""
        ...

    @property
    def server_name(self) -> str | None:
        """What the sound server was asked for, if it was asked for anything; valid after `open`."""
        ...


class Keeper:
    """See the module."""

    def __init__(
        self, kind: Kind, name: str, tasks: Tasks, on_state: StateListener | None, bell: Doorbell | None = None
    ) -> None:
        self._kind, self._name = kind, name
        self._tasks = tasks
        self._on_state = on_state
        self._closing = threading.Event()
        self._changed = threading.Event()
        self._anew = threading.Event()
        self._server: PulseWatch | None = None
        self._reason: str | None = None
        self._phase = ""
        self._bad_rests = 0
        self.bell = bell or Doorbell()
        """Ring it when there is something to serve."""
        self.times_lost = 0
        self._thread = threading.Thread(target=self._run, name=f"{kind}-keeper", daemon=True)

    def start(self) -> None:
        """Begin to open."""
        self._thread.start()

    def reopen(self) -> None:
        """Close the stream and open it again, with whatever has changed; any thread."""
        self._anew.set()
        self.bell.ring()

    def close(self) -> bool:
        """Close the stream and end the thread. False if the device hangs: it will be closed when it no longer does."""
        self._closing.set()
        self.bell.ring()
        if threading.current_thread() is self._thread:
            return True
        self._thread.join(CLOSE_WAIT_S)
        if not self._thread.is_alive():
            return True
        # It may have a successor by the time it is done, and must not speak for it.
        self._tell("closed")
        self._on_state = None
        return False

    def _run(self) -> None:
        failures = 0
        while not self._closing.is_set():
            stream = self._open()
            if stream is not None:
                reason = self._guarded(partial(self._watch, stream))
                if self._phase == "running":
                    failures = 0
                if not stream.close():
                    _LOG.warning("%s %s hangs and could not be closed in time", self._kind, self._name)
                if stream.gone or self._anew.is_set():
                    self._anew.clear()
                    continue  # nothing is wrong with the device: open again at once
                if reason is not None:
                    self._tell("lost", reason)
            # What has just come may take a moment until it can be opened.
            came = self._wait_lost(BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)])
            failures = 0 if came else failures + 1
        self._unwatch_server()
        self._tell("closed")

    def _open(self) -> OpenStream | None:
        self._anew.clear()  # whatever it was wanted for, this is it
        opened: list[OpenStream] = []
        reason = self._guarded(lambda: opened.append(self._tasks.open()))
        if reason is not None:
            self._tell("lost", reason)
        if not opened:
            return None
        if self._tasks.server_name is not None:
            self._unwatch_server()
            self._server = PulseWatch(self._server_changed)
            self._changed.set()  # it may have gone before we began to watch
        return opened[0]

    def _guarded(self, action: Callable[[], str | None]) -> str | None:
        """The last line of defence: the thread lives on, and what went wrong is said."""
        try:
            return action()
        except ApplianceError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001
            _LOG.exception("%s %s: a fault of ours", self._kind, self._name)
            return f"{type(error).__name__}: {error}"

    def _watch(self, stream: OpenStream) -> str | None:
        """Serve until it is closed or given up; why it was given up."""
        since_s = woke_s = time.monotonic()
        wait_s = 0.0
        raised = 0
        while True:
            self.bell.wait(min(wait_s, STALL_S / 4))
            slept_s, woke_s = time.monotonic() - woke_s, time.monotonic()
            if slept_s > STALL_S / 2:
                # The whole process stood still, and its callbacks with it: no fault of the device.
                since_s = woke_s
            if self._closing.is_set():
                return None
            wait_s = self._tasks.serve()
            if self._phase == "running" and self._rest_or_resume(stream):
                since_s = time.monotonic()
            if stream.thread_id not in (0, raised):
                raised = stream.thread_id
                # On a thread of its own: RealtimeKit may take a second to answer, and a reply waits to be served.
                threading.Thread(target=self._raise, args=(raised,), name=f"{self._kind}-rise", daemon=True).start()
            if self._anew.is_set():
                return None
            if self._changed.is_set():
                self._changed.clear()
                if not self._still_there():
                    return "it was unplugged"
            reason = self._ailment(stream, since_s)
            if reason is not None:
                return reason

    def _rest_or_resume(self, stream: OpenStream) -> bool:
        """Stop a stream that has nothing to do, start one again that has; True where it was started. Raises
        `ApplianceError`."""
        if stream.resting is not self._tasks.wanted or (not stream.resting and self._bad_rests >= MAX_BAD_RESTS):
            return False
        self._bad_rests += 1  # unless it goes well
        if not stream.resting:
            stream.rest()
            self._bad_rests -= 1
            return False
        self._tasks.resumed()
        stream.resume()
        self._bad_rests = 0
        return True

    def _raise(self, thread_id: int) -> None:
        _LOG.debug("%s %s: callbacks with %s", self._kind, self._name, raise_thread(thread_id))

    def _ailment(self, stream: OpenStream, since_s: float) -> str | None:
        """What is wrong with the stream, if anything is; silence before `since_s` does not count."""
        now_s = time.monotonic()
        if stream.fault is not None:
            return stream.fault
        if not stream.alive():
            return "it stopped: unplugged, or its sound server ended"
        if stream.resting:
            # Nothing comes from it that could fail to come.
            return None if card_is_there(self._tasks.opened_name) else "it was unplugged"
        if not stream.last_block_s:
            late = now_s - since_s > FIRST_BLOCK_S
            return f"it was started, but nothing came from it for {FIRST_BLOCK_S:g} s" if late else None
        self._tell("running")
        silent_s = now_s - max(stream.last_block_s, since_s)
        return f"nothing came from it for {STALL_S:g} s" if silent_s > STALL_S else None

    def _wait_lost(self, seconds: float) -> bool:
        """Wait until it is worth trying again; True where that is because something came or went."""
        until_s, before = time.monotonic() + seconds, landscape()
        while not self._closing.is_set():
            left_s = until_s - time.monotonic()
            if self._changed.is_set() or landscape() != before:
                self._changed.clear()
                return True
            if left_s <= 0.0:
                return False
            self.bell.wait(min(left_s, self._tasks.serve_lost()))
        return False

    def _still_there(self) -> bool:
        """Whether the sound server still has what it was asked for; it moves us elsewhere without a word."""
        name = self._tasks.server_name
        return name is None or any(device.name == name for device in pulse_devices(self._kind))

    def _server_changed(self) -> None:
        self._changed.set()
        self.bell.ring()

    def _unwatch_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _tell(self, phase: Literal["running", "lost", "closed"], reason: str = "") -> None:
        """Each change once; a device that stays lost for another reason is told again."""
        if phase == self._phase and (phase != "lost" or reason == self._reason):
            return
        self.times_lost += self._phase == "running" and phase == "lost"
        self._phase, self._reason = phase, reason
        if self._on_state is not None:
            self._on_state(DeviceState(self._kind, self._name, phase, reason, time.monotonic()))
