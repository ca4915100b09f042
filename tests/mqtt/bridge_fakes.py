"""Fakes of what is around the bridge: the connection, the controls, the service. Named so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

from appliance.audio.sounds import Sound
from appliance.errors import NoDeviceError
from appliance.hub import Hub
from appliance.mqtt.controls import ControlsView, TimerView, Versions
from appliance.mqtt.protocol import MAX_BYTES, Handler, Kind, LinkState, Message, Refused

BASE = "wren/wren-ab12"
WHOLE = ControlsView(
    microphone="live",
    volume_percent=60,
    wake_words=("okay_nabu",),
    wake_word_options=("okay_nabu", "hey_jarvis", "alexa"),
    wake_sensitivity=None,
    voice="joe",
    voices=("joe",),
    language="en",
    languages=("en",),
    system=Versions("0.1.0", None),
    models=Versions("2026.11", "2026.11"),
)
"""A machine with everything."""


def matches(pattern: str, topic: str) -> bool:
    """MQTT's own matching of a topic filter."""
    wanted, given = pattern.split("/"), topic.split("/")
    if "#" in wanted:
        place = wanted.index("#")
        wanted, given = wanted[:place], given[:place]
    return len(wanted) == len(given) and all(w in {"+", g} for w, g in zip(wanted, given, strict=True))


class FakeLink:
    """A connection to a broker in memory: keeps what is retained, and gives it to whoever subscribes."""

    availability_topic = f"{BASE}/availability"

    def __init__(self) -> None:
        self.retained: dict[str, bytes] = {}
        self.sent: list[tuple[str, bytes, Kind]] = []
        self.lock = threading.Lock()
        self._handlers: list[tuple[str, Handler, int]] = []
        self._ready: list[Callable[[], None]] = []
        self._refused: list[Callable[[Refused], None]] = []

    def publish(self, topic: str, payload: bytes, *, kind: Kind, retain: bool = False) -> bool:
        assert not set("+#") & set(topic)
        assert retain == (kind is Kind.STATE)
        with self.lock:
            self.sent.append((topic, payload, kind))
            if retain and payload:
                self.retained[topic] = payload
            elif retain:
                self.retained.pop(topic, None)
        return True

    def subscribe(self, topic_filter: str, handler: Handler, max_bytes: int = MAX_BYTES) -> None:
        self._handlers.append((topic_filter, handler, max_bytes))

    def on_ready(self, callback: Callable[[], None]) -> None:
        self._ready.append(callback)

    def on_refused(self, callback: Callable[[Refused], None]) -> None:
        self._refused.append(callback)

    def state(self) -> LinkState:
        return LinkState(True, "fake:1883", "", (), 0, 0, 0)

    # ---- what the broker does

    def connect(self) -> None:
        """The broker gives what stands, then all is ready."""
        with self.lock:
            standing = dict(self.retained)
        for topic, payload in standing.items():
            self.receive(topic, payload, retain=True)
        for callback in self._ready:
            callback()

    def receive(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """A message from the broker."""
        for pattern, handler, max_bytes in self._handlers:
            if matches(pattern, topic):
                if len(payload) <= max_bytes:
                    handler(Message(topic, payload, retain))
                else:
                    for callback in self._refused:
                        callback(Refused(topic, len(payload), f"too large: {len(payload)} bytes"))

    def on(self, topic: str) -> list[bytes]:
        """What was published on a topic, oldest first."""
        with self.lock:
            return [payload for told, payload, _ in self.sent if told == topic]


@dataclass
class FakeControls:
    """A machine that remembers what it was asked."""

    state: ControlsView = WHOLE
    running: list[TimerView] = field(default_factory=list)
    asked: list[tuple[str, object]] = field(default_factory=list)
    broken: bool = False

    def view(self) -> ControlsView:
        return self.state

    def timers(self) -> Sequence[TimerView]:
        return list(self.running)

    def _ask(self, what: str, value: object, **changes: object) -> None:
        if self.broken:
            raise NoDeviceError("the fake speaker is unplugged")
        self.asked.append((what, value))
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]

    def mute(self, muted: bool) -> None:
        self._ask("mute", muted, microphone="muted" if muted else "live")

    def set_volume(self, percent: int) -> None:
        self._ask("volume", percent, volume_percent=percent)

    def set_wake_word(self, name: str) -> None:
        self._ask("wake_word", name, wake_words=(name,))

    def set_wake_sensitivity(self, percent: int) -> None:
        self._ask("wake_sensitivity", percent, wake_sensitivity=percent)

    def set_voice(self, name: str) -> None:
        self._ask("voice", name, voice=name)

    def set_language(self, code: str) -> None:
        self._ask("language", code, language=code)

    def play(self, sound: Sound) -> None:
        self._ask("play", sound)

    def ring(self, seconds: float) -> None:
        self._ask("ring", seconds, ringing=True)

    def hush(self) -> None:
        self.state = replace(self.state, ringing=False)

    def start_timer(self, seconds: int, name: str | None) -> TimerView:
        self._ask("timer", (seconds, name))
        self.running.append(TimerView(len(self.running) + 1, name, seconds, float(seconds), True))
        return self.running[-1]

    def cancel_timer(self, timer_id: int) -> bool:
        kept = [timer for timer in self.running if timer.id != timer_id]
        found = len(kept) < len(self.running)
        self.running = kept
        return found

    def install_models(self) -> None:
        self._ask("install", None)

    def restart(self) -> None:
        self._ask("restart", None)


class FakeService:
    """Speaks when it is told that somebody would."""

    def __init__(self) -> None:
        self.hub = Hub()
        self.said: list[tuple[str, Callable[[str], None]]] = []
        self.stops = self.listens = 0
        self.free = self.heard = True
        self.has_microphone = True
        self.open: dict[str, str] = {}
        self.times_s: list[float] = []
        self.wren = SimpleNamespace(
            opener=SimpleNamespace(settled={"asr": SimpleNamespace(backend="ort-cpu", precision="int8")})
        )

    def audible(self) -> bool:
        return self.heard

    def busy(self) -> bool:
        return not self.free

    def say(self, text: str, ended: Callable[[str], None]) -> bool:
        if self.free:
            self.said.append((text, ended))
        return self.free

    def listen(self) -> bool:
        self.listens += 1
        return self.has_microphone

    def stop(self) -> bool:
        self.stops += 1
        return True

    def sessions(self) -> dict[str, str]:
        return dict(self.open)

    def traces(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(response_s=time_s) for time_s in self.times_s]
