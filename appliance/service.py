"""The running appliance as its faces see it: sessions that open and close, commands, the newest traces.

Thread-safe. Faces (page, MQTT, Wyoming) know this, `Hub` and the events, and nothing of each other.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Final, Protocol

from appliance.app import Wren
from appliance.errors import ApplianceError
from appliance.events import MACHINE, Event
from appliance.hub import Hub
from appliance.intent.types import Reply, UtteranceId
from appliance.telemetry.trace import TraceRecorder, UtteranceTrace
from appliance.voice.loop import Phase
from appliance.voice.runner import LiveRunner
from appliance.voice.session import Player, Session

__all__ = ["LOCAL", "MicrophoneSwitch", "Service", "SessionLimitError"]

MAX_SESSIONS: Final = 8
"""Each takes two threads and some 10 MB; more microphones than this belong on more than one appliance."""

LOCAL: Final = "local"
"""Name of the session of the machine's own microphone and speaker."""


class MicrophoneSwitch(Protocol):
    """The machine's own microphone, as a face may close and open it."""

    def mute(self, muted: bool) -> None:
        """Close the microphone for good (not merely ignore it), or open it again. May take a moment."""
        ...


MakePlayer = Callable[[LiveRunner], Player]


class SessionLimitError(ApplianceError):
    """As many conversations as this machine takes are open."""

    code = "appliance.sessions"
    retry = True


class Service:
    """Owns the sessions; made once, closed once."""

    def __init__(self, wren: Wren, hub: Hub | None = None) -> None:
        self.wren = wren
        self.hub = hub or Hub()
        self.microphone: MicrophoneSwitch | None = None
        """The machine's own; None where it is not used."""
        self._traces = TraceRecorder(keep=100)
        self.hub.subscribe(self._traces)
        self._heard_s = time.monotonic()
        self.hub.subscribe(self._note)
        self._sessions: dict[str, LiveRunner] = {}
        self._lock = threading.Lock()

    def open_session(self, kind: str, player: MakePlayer, *, wake: bool) -> LiveRunner:
        """A new conversation (`kind` becomes the start of its name); close it with `close_session`.

        Its clock is the monotonic one: frames pushed into it carry monotonic times.

        Raises `SessionLimitError`.
        """
        with self._lock:
            if len(self._sessions) >= MAX_SESSIONS:
                raise SessionLimitError(f"{MAX_SESSIONS} conversations are open already; close one and try again")
            name = kind if kind not in self._sessions else f"{kind}-{uuid.uuid4().hex[:6]}"

            def make(runner: LiveRunner) -> Session:
                return self.wren.session(name, runner, player(runner), self.hub.emit, wake=wake)

            runner = LiveRunner(make)
            self._sessions[name] = runner
            return runner

    def close_session(self, runner: LiveRunner) -> None:
        """End a conversation and its threads; no error where it has ended already."""
        with self._lock:
            self._sessions.pop(runner.session.name, None)
        runner.close()

    def sessions(self) -> dict[str, str]:
        """Open sessions: name to phase."""
        with self._lock:
            return {name: runner.session.phase.value for name, runner in self._sessions.items()}

    def quiet_s(self) -> float:
        """For how long nothing has been said or heard; 0 while a conversation goes on."""
        if any(phase != Phase.IDLE.value for phase in self.sessions().values()):
            return 0.0
        return time.monotonic() - self._heard_s

    def traces(self) -> list[UtteranceTrace]:
        """The newest finished utterances, oldest first."""
        return list(self._traces.finished)

    def ask(self, text: str) -> Reply:
        """Understand and act on a typed text, as if it had been spoken; the reply is returned, not spoken. Blocks."""
        understanding = self.wren.assistant.match(text, self.wren.area)
        return self.wren.assistant.commit(understanding, UtteranceId(f"text-{uuid.uuid4().hex[:12]}"))

    def announce(self, text: str) -> bool:
        """Say something on the machine's own speaker, or, where it has none, in every open page.

        False where everybody is busy or nobody is there: try again.
        """
        with self._lock:
            runners = dict(self._sessions)
        local = runners.get(LOCAL)
        said = False
        for runner in [local] if local is not None else runners.values():
            if runner.session.phase is Phase.IDLE:
                runner.call(lambda session=runner.session: session.announce(text))  # type: ignore[misc]
                said = True
        return said

    def _note(self, event: Event) -> None:
        if event.session != MACHINE:
            self._heard_s = time.monotonic()

    def close(self) -> None:
        """End every conversation."""
        with self._lock:
            runners = list(self._sessions.values())
            self._sessions.clear()
        for runner in runners:
            runner.close()
