"""A room in which the microphone hears the speaker: the running appliance's own sound devices and session, with the
virtual speaker led back into the virtual microphone.
"""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

import numpy as np

from appliance import events
from appliance.app import Wren
from appliance.audio.files import read_blocks
from appliance.audio.frame import RATE_HZ, Samples, level_dbfs
from appliance.audio.resample import MonoResampler
from appliance.running import LocalAudio, prepare_process
from appliance.service import LOCAL, Service
from appliance.settings import Settings
from tests.peers.pulse import MICROPHONE, SPEAKER, PulseServer

__all__ = ["REPLIES", "EchoRoom", "Try", "human_wakes", "spoken_stops"]

ECHO_DB: Final = -6.0
ECHO_MS: Final = 30
ROOM_DBFS: Final = -62.0
SPEAKER_DBFS: Final = -27.0
"""Of somebody who interrupts: the median of the human recordings."""
LATE_S: Final = 2.5
"""Sooner after the end of the word, and the reply must have ended."""
SILENT: Final = 2e-3

REPLIES: Final = (
    "The kitchen lights are on, and the heating in the living room is set to twenty one degrees until half past ten.",
    "Your timer for ten minutes has started. Two others are still running: one for the oven, and one for the washing.",
    "Tomorrow it will be cloudy in the morning, with some rain around noon and a little sun in the late afternoon.",
    "I am called Wren. You wake me by saying okay nabu, and then you say what you want me to do for you.",
    "The shopping list holds apples, bread, two bottles of milk, washing powder, coffee, and a birthday card for Alex.",
    "Nobody has been at the front door since you left. The garage is closed, and all of the windows are shut.",
)
"""One says the wake word itself."""
LONG_REPLIES: Final = tuple(f"{one} {other}" for one, other in zip(REPLIES[::2], REPLIES[1::2], strict=True))
"""Long enough to be interrupted."""


@dataclass(frozen=True, slots=True)
class Try:
    """Somebody spoke into a reply."""

    ended: bool
    """The reply ended for it, in time."""
    silence_ms: float | None
    """From the moment that it was understood to silence at the speaker; None where it did not end."""


class EchoRoom:
    """The local session of a service, in such a room; a context manager."""

    def __init__(self, wren: Wren, pulse: PulseServer, settings: Settings | None = None) -> None:
        self.pulse = pulse
        # Made beforehand: how fast this machine makes speech is no matter here, and a slow one would say less.
        for text in (*REPLIES, *LONG_REPLIES):
            wren.synthesiser().whole(text)
        self.events: list[tuple[float, events.Event]] = []
        """With the monotonic time at which each was told."""
        self._switch_s = sys.getswitchinterval()
        prepare_process()  # as `wren run` does
        self.service = Service(wren)
        self.service.hub.subscribe(lambda event: self.events.append((time.monotonic(), event)))
        base = settings or Settings()
        # Acknowledgements aside: they begin where the reply ends, and when that is silent is measured.
        room = {"microphone": MICROPHONE, "speaker": SPEAKER, "volume_percent": 100, "acknowledgement_sounds": False}
        audio = base.audio.model_copy(update=room)
        self.local = LocalAudio(self.service, base.model_copy(update={"audio": audio}))
        self._noise: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> EchoRoom:
        self.pulse.pactl(
            "load-module", "module-loopback", "source=spk.monitor", "sink=mic_in", f"latency_msec={ECHO_MS}",
            "adjust_time=0", "source_dont_move=true", "sink_dont_move=true",
        )  # fmt: skip
        inputs = self.pulse.pactl("list", "short", "sink-inputs").splitlines()
        self.pulse.pactl("set-sink-input-volume", inputs[-1].split("\t")[0], f"{ECHO_DB:g}dB")
        noise = np.random.default_rng(1).standard_normal(RATE_HZ * 900, dtype=np.float32)
        self._noise = self.pulse.say(noise * np.float32(10 ** (ROOM_DBFS / 20)))
        self.local.start()
        _eventually(lambda: self.local.settled and self.local.state().microphone == "live", 20.0)
        time.sleep(1.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.local.close()
        self.service.close()
        sys.setswitchinterval(self._switch_s)
        gc.unfreeze()
        if self._noise is not None:
            self._noise.kill()
            self._noise.wait()
        with suppress(subprocess.CalledProcessError):
            self.pulse.pactl("unload-module", "module-loopback")

    def told(self, kind: type[events.Event], since: int = 0) -> list[tuple[float, events.Event]]:
        """Events of a kind, after the first `since`."""
        return [(told_s, event) for told_s, event in self.events[since:] if isinstance(event, kind)]

    def reply(self, text: str) -> int:
        """Begin to say something; returns how many events there were before."""
        _eventually(self._idle, 30.0)
        since = len(self.events)
        _eventually(lambda: self.service.announce(text), 10.0)
        _eventually(lambda: bool(self.told(events.FirstAudio, since)), 20.0)
        return since

    def reply_for(self, seconds: float) -> tuple[int, list[events.Event]]:
        """Say replies one after the other; how many, and everything that anybody was taken to have said into them."""
        until_s, count, first = time.monotonic() + seconds, 0, len(self.events)
        while time.monotonic() < until_s:
            since = self.reply(REPLIES[count % len(REPLIES)])
            _eventually(lambda now=since: bool(self.told(events.UtteranceEnded, now)), 40.0)  # type: ignore[misc]
            count += 1
        wrong: list[events.Event] = [event for _, event in self.told(events.WakeHeard, first)]
        wrong += [event for _, event in self.told(events.ListeningStarted, first)]
        for _, event in self.told(events.UtteranceEnded, first):
            if isinstance(event, events.UtteranceEnded) and event.outcome != "answered":
                wrong.append(event)
        return count, wrong

    def interrupt(self, number: int, said: Samples) -> Try:
        """Speak into the middle of a reply."""
        with self.pulse.record() as recording:
            since = self.reply(LONG_REPLIES[number % len(LONG_REPLIES)])
            time.sleep(random.Random(number).uniform(1.0, 2.5))
            self.pulse.say(said).wait(20.0)
            ended = _within(lambda: bool(self._stopped(since)), LATE_S)
            time.sleep(0.4)
            silence_ms = None
            if ended:
                (stopped_s, _), *_ = self._stopped(since)
                last = int(np.flatnonzero(np.abs(recording.samples) > SILENT)[-1])
                silence_ms = (recording.time_of(last) - stopped_s) * 1000
        self.service.stop()
        _eventually(self._idle, 10.0)
        return Try(ended, silence_ms)

    def _stopped(self, since: int) -> list[tuple[float, events.Event]]:
        return [
            (told_s, event)
            for told_s, event in self.told(events.PlaybackEnded, since)
            if isinstance(event, events.PlaybackEnded) and event.stopped
        ]

    def _idle(self) -> bool:
        return self.service.sessions()[LOCAL] == "idle"


def human_wakes(shared: Path, count: int) -> list[Samples]:
    """People saying "alexa", [n] float32 at 16 kHz, as they were recorded."""
    files = sorted((shared / "speech" / "wake" / "alexa").glob("*.flac"))
    step = max(1, len(files) // count)
    return [np.concatenate(list(read_blocks(file))) for file in files[::step][:count]]


def spoken_stops(wren: Wren, folder: Path, count: int) -> list[Samples]:
    """ "Stop" by several synthetic voices (there are no recordings of people), as loud as people are."""
    said: list[Samples] = []
    voices = ("slt", "rms", "awb", "kal16")
    for i in range(count):
        voice = (*voices, "wren")[i % 5]
        text = ("stop", "stop", "stop please", "stop it")[(i // 5) % 4]
        if voice == "wren":
            synthesiser = wren.synthesiser()
            rate_hz, sound = synthesiser.rate_hz, synthesiser.whole(text)
        else:
            file = folder / f"stop-{i}.wav"
            subprocess.run(["flite", "-voice", voice, "-t", text, "-o", str(file)], check=True)
            rate_hz, sound = RATE_HZ, np.concatenate(list(read_blocks(file)))
        resampler = MonoResampler(rate_hz)
        sound = np.concatenate((resampler.push(sound), resampler.flush()))
        loud = sound[np.abs(sound) > 0.02]
        said.append(sound * np.float32(10 ** ((SPEAKER_DBFS - level_dbfs(loud)) / 20)))
    return said


def _within(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.005)
    return True


def _eventually(condition: Callable[[], bool], timeout_s: float) -> None:
    assert _within(condition, timeout_s), "it did not happen in time"
