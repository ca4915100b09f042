"""The running appliance as its faces see it: sessions that open and close, commands, the newest traces.

Thread-safe. Faces (page, MQTT, Wyoming) know this, `Hub` and the events, and nothing of each other.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from appliance.apology import Apology
from appliance.app import Wren
from appliance.errors import ApplianceError
from appliance.events import MACHINE, Announcing, Event, UtteranceEnded
from appliance.hub import Hub
from appliance.intent.types import Reply, UtteranceId
from appliance.strain import LOCAL
from appliance.telemetry.speculation import SpeculationWatch
from appliance.telemetry.trace import TraceRecorder, UtteranceTrace
from appliance.voice.feeding import WatchedPlayer
from appliance.voice.loop import Phase
from appliance.voice.parts import Alarm, Ears
from appliance.voice.runner import LiveRunner
from appliance.voice.session import Player, Session

__all__ = ["LOCAL", "MicrophoneSwitch", "Service", "SessionLimitError"]

MAX_SESSIONS: Final = 8
"""Each takes two threads and some 10 MB; more microphones than this belong on more than one appliance."""


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
        self.speaker_open: Callable[[], bool] = lambda: True
        """Whether the machine's own speaker is there; while it is not, open pages are spoken to instead."""
        self.alarm: Alarm | None = None
        """What rings on the machine's own speaker; None where it is not used."""
        self._traces = TraceRecorder(keep=100)
        self.hub.subscribe(self._traces)
        self.speculation = SpeculationWatch()
        """What working ahead of the end brought, and what it cost."""
        self.hub.subscribe(self.speculation)
        self._heard_s = time.monotonic()
        self.hub.subscribe(self._note)
        self._sessions: dict[str, LiveRunner] = {}
        self._sayings: dict[str, _Saying] = {}
        self.hub.subscribe(self._follow)
        self.strain = wren.strain
        self.strain.emit = self.hub.emit
        self.hub.subscribe(self.strain)
        self.hub.subscribe(Apology(self._apologise))
        self._lock = threading.Lock()

    def open_session(
        self, kind: str, player: MakePlayer, *, wake: bool, ears: Ears | None = None, alarm: Alarm | None = None
    ) -> LiveRunner:
        """A new conversation (`kind` becomes the start of its name); close it with `close_session`.

        Its clock is the monotonic one: frames pushed into it carry monotonic times. `ears` and `alarm`: see
        `Wren.session`.

        Raises `SessionLimitError`.
        """
        with self._lock:
            if len(self._sessions) >= MAX_SESSIONS:
                raise SessionLimitError(f"{MAX_SESSIONS} conversations are open already; close one and try again")
            name = kind if kind not in self._sessions else f"{kind}-{uuid.uuid4().hex[:6]}"

            def make(runner: LiveRunner) -> Session:
                fed = WatchedPlayer(
                    player(runner), meter, runner.now, runner.call_at, runner.deliver, self.strain.relief
                )
                return self.wren.session(name, runner, fed, self.hub.emit, wake=wake, ears=ears, alarm=alarm)

            meter = self.strain.meter()
            runner = LiveRunner(make, meter=meter, paced=kind == LOCAL)
            self._sessions[name] = runner
            return runner

    def close_session(self, runner: LiveRunner) -> None:
        """End a conversation and its threads; no error where it has ended already."""
        with self._lock:
            self._sessions.pop(runner.session.name, None)
        runner.close()
        self.strain.gone(runner.session.name)
        self._said(runner.session.name, "failed")

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
        return self.say(text, lambda _: None)

    def say(self, text: str, ended: Callable[[str], None]) -> bool:
        """As `announce`, and `ended` is called once, at any thread, with how it ended.

        That is `answered` (the last sample has been heard), `stopped`, `failed`, or `busy` where somebody began to
        speak in between. False, and no call, where everybody is busy or nobody is there.
        """
        runners = [runner for runner in self._speaking_sessions() if runner.session.phase is Phase.IDLE]
        together = _Together(len(runners), ended)
        for runner in runners:
            saying = _Saying(text, together.ended)
            if not runner.call(lambda runner=runner, saying=saying: self._begin(runner.session, saying)):  # type: ignore[misc]
                together.ended("busy")
        return bool(runners)

    def audible(self) -> bool:
        """Whether what is announced would be heard: there is a speaker of this machine, or an open page."""
        return bool(self._speaking_sessions())

    def busy(self) -> bool:
        """Whether an announcement would have to wait: everybody speaks or listens, or nobody is there."""
        return all(runner.session.phase is not Phase.IDLE for runner in self._speaking_sessions())

    def listen(self) -> bool:
        """Begin to listen at the machine's own microphone, as after its wake word; False where that cannot be."""
        with self._lock:
            local = self._sessions.get(LOCAL)
        return local is not None and local.call(local.session.listen)

    def stop(self) -> bool:
        """End what rings, is said and heard here, and where `announce` would speak; False where nobody is there."""
        with self._lock:
            local = self._sessions.get(LOCAL)
        if self.alarm is not None:
            self.alarm.hush()
        here = [] if local is None else [local]
        asked = [runner.call(runner.session.stop) for runner in dict.fromkeys((*here, *self._speaking_sessions()))]
        return any(asked)

    def _speaking_sessions(self) -> list[LiveRunner]:
        with self._lock:
            local = self._sessions.get(LOCAL)
            if local is not None and self.speaker_open():
                return [local]
            return [runner for runner in self._sessions.values() if runner is not local]

    def _apologise(self, session: str, text: str) -> None:
        """On the session's thread, while its utterance ends: said once that is over."""
        with self._lock:
            runner = self._sessions.get(session)
        if runner is not None:
            runner.call(lambda: self._announce(runner.session, text))

    def _announce(self, session: Session, text: str) -> None:
        session.announce(text)

    def _begin(self, session: Session, saying: _Saying) -> None:
        """On the session's thread, where `announce` tells of itself before it returns."""
        if session.phase is not Phase.IDLE:
            saying.ended("busy")
            return
        self._sayings[session.name] = saying
        if not session.announce(saying.text):
            self._said(session.name, "busy")

    def _follow(self, event: Event) -> None:
        saying = self._sayings.get(event.session)
        if saying is not None and isinstance(event, Announcing) and saying.utterance is None:
            saying.utterance = event.utterance
        elif saying is not None and isinstance(event, UtteranceEnded) and saying.utterance == event.utterance:
            self._said(event.session, event.outcome)

    def _said(self, session: str, outcome: str) -> None:
        saying = self._sayings.pop(session, None)
        if saying is not None:
            saying.ended(outcome)

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
            self._said(runner.session.name, "failed")


@dataclass(slots=True)
class _Saying:
    """An announcement in one session."""

    text: str
    ended: Callable[[str], None]
    utterance: str | None = None


class _Together:
    """Several announcements of one text: over when the last is; it was heard where any was."""

    def __init__(self, count: int, ended: Callable[[str], None]) -> None:
        self._left, self._ended = count, ended
        self._outcomes: list[str] = []
        self._lock = threading.Lock()

    def ended(self, outcome: str) -> None:
        """One of them is over."""
        with self._lock:
            self._outcomes.append(outcome)
            over = len(self._outcomes) == self._left
        if over:
            self._ended("answered" if "answered" in self._outcomes else self._outcomes[0])
