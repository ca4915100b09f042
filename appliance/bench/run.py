"""Clips heard one after the other through the live path, and what came of each."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from appliance import events
from appliance.app import Wren
from appliance.audio.frame import RATE_HZ, Frame, Samples
from appliance.bench.material import Clip
from appliance.bench.meters import CpuMeter
from appliance.bench.score import Action, judge
from appliance.bench.sound import mix_noise, read_sound
from appliance.recording import HeardRecording, file_frames, hear, samples_frames
from appliance.telemetry.trace import UtteranceTrace
from models import Progress

__all__ = [
    "CUT_S",
    "TAIL_S",
    "Ahead",
    "ClipResult",
    "Noise",
    "Split",
    "hear_clip",
    "noisy",
    "run_by",
    "run_clips",
    "warm_up",
]

CUT_S: Final = 0.150
"""An endpoint more than this before the end of speech has cut the speaker off."""
TAIL_S: Final = 10.0
"""Noise that goes on behind a clip, at most; a clip ends when its utterance has."""
_WARM_UPS: Final = 2


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise to mix in."""

    sound: Samples
    snr_db: float
    """How far the speech is above it."""


@dataclass(frozen=True, slots=True)
class Split:
    """Where the response time of one clip went, in ms; None where a step did not take place. The steps add up."""

    endpoint: float | None
    """End of speech (as the manifest has it) to the decision that the speaker is done."""
    recognition: float | None
    """What recognition still needed after the endpoint."""
    intent: float | None
    """Final text to reply ready: understood, and carried out."""
    synthesis: float | None
    """Reply ready to its first sample."""
    device: float | None
    """What the player adds until the sample sounds. Nothing for a recording: it has no loudspeaker."""
    total: float | None
    """End of speech to first sample: the response time."""
    after_endpoint: float | None
    """Endpoint to first sample."""

    @classmethod
    def of(cls, trace: UtteranceTrace, speech_end_s: float) -> Split:
        """Of one utterance, against the true end of speech."""
        marks = (speech_end_s, trace.endpoint_s, trace.final_text_s, trace.reply_s, trace.first_audio_s)
        endpoint, recognition, intent, synthesis = (_between_ms(a, b) for a, b in itertools.pairwise(marks))
        return cls(
            endpoint=endpoint,
            recognition=recognition,
            intent=intent,
            synthesis=synthesis,
            device=None if trace.first_audio_s is None else 0.0,
            total=_between_ms(speech_end_s, trace.first_audio_s),
            after_endpoint=_between_ms(trace.endpoint_s, trace.first_audio_s),
        )


@dataclass(frozen=True, slots=True)
class Ahead:
    """What was done before it was known to be wanted; see `SpeculationEnded`."""

    recognitions: int = 0
    replies: int = 0
    hits: int = 0
    """Replies begun ahead that were then said."""
    spent_s: float = 0.0
    wasted_s: float = 0.0

    def plus(self, event: events.SpeculationEnded) -> Ahead:
        """And one more utterance."""
        return Ahead(
            self.recognitions + event.recognitions,
            self.replies + event.replies,
            self.hits + event.hit,
            self.spent_s + event.spent_s,
            self.wasted_s + event.wasted_s,
        )


@dataclass(frozen=True, slots=True)
class ClipResult:
    """What came of one clip."""

    clip: Clip
    heard: str
    actions: tuple[Action, ...]
    right: bool
    wrong_action: bool
    cut: bool
    """An utterance ended more than 150 ms before the end of speech."""
    split: Split | None
    """Of the utterance that stands for the clip; None where nothing was answered, or the speaker was cut off."""
    endpoint_reason: str | None
    reply: str | None
    cpu_s: float
    """CPU seconds of this process and its children, from the first sample to rest."""
    others_cores: float | None
    """Cores that other programs kept busy meanwhile."""
    ahead: Ahead | None
    """None: not a thing of this system."""
    dropped_frames: int
    error: str | None
    """Why the clip could not be heard, or which stage failed."""


def run_by(wren: Wren) -> dict[str, str]:
    """Task -> backend, precision and threads that run it, and where that is not as planned."""
    return {
        task: "; ".join((f"{_words(s.backend, s.precision, s.scheme)}, {s.threads} thread(s)", *s.degraded))
        for task, s in sorted(wren.opener.settled.items())
    }


def hear_clip(
    wren: Wren, clip: Clip, *, realtime: bool, noise: Noise | None = None, sound: Samples | None = None
) -> ClipResult:
    """Let a new session hear one clip. `sound`, [n] float32 at 16 kHz, takes the place of the file's own.

    A file that cannot be read, or a stage that fails, ends up in `error`.
    """
    over = threading.Event()
    ahead = Ahead()

    def sink(event: events.Event) -> None:
        nonlocal ahead
        if isinstance(event, events.UtteranceEnded):
            over.set()
        elif isinstance(event, events.SpeculationEnded):
            ahead = ahead.plus(event)

    meter = CpuMeter()
    frames = _frames(clip, noise, sound, over)
    # Where time is simulated, compute counts as CPU time: what other programs take of the machine is left out.
    heard = hear(wren, clip.name, frames, wake=False, realtime=realtime, sink=sink, clock=time.thread_time)
    cpu_s, others = meter.read()
    return _result(clip, heard, ahead, wren.area, cpu_s, others)


def run_clips(
    wren: Wren,
    clips: Sequence[Clip],
    progress: Progress,
    stage: str,
    *,
    realtime: bool,
    noise: Noise | None = None,
) -> list[ClipResult]:
    """Hear all clips, one after the other; one that fails does not keep the others from being heard."""
    results: list[ClipResult] = []
    for clip in clips:
        progress(stage, len(results), len(clips))
        results.append(hear_clip(wren, clip, realtime=realtime, noise=noise))
    progress(stage, len(clips), len(clips))
    return results


def warm_up(wren: Wren, clips: Sequence[Clip]) -> None:
    """Hear a clip that can be heard, so that nothing of what follows is the first of its kind."""
    done = 0
    for clip in clips:
        done += hear_clip(wren, clip, realtime=False).error is None
        if done == _WARM_UPS:
            return


def noisy(clip: Clip, noise: Noise, tail_s: float = TAIL_S) -> Samples:
    """The clip in noise that goes on behind it. Another piece of the noise for each clip, the same every time.

    Raises `AudioFormatError`; `MaterialError` where the clip or the noise is silent.
    """
    speech = (clip.speech_start_s, clip.speech_end_s)
    return mix_noise(read_sound(clip.path), noise.sound, noise.snr_db, speech, tail_s, seed=clip.name)


def _frames(clip: Clip, noise: Noise | None, sound: Samples | None, over: threading.Event) -> Iterator[Frame]:
    """What the microphone hears: the clip, and with noise the noise behind it until an utterance has ended."""
    if noise is None:
        yield from file_frames(clip.path) if sound is None else samples_frames(sound)
        return
    mixed = noisy(clip, noise)
    own_s = mixed.size / RATE_HZ - TAIL_S
    for frame in samples_frames(mixed):
        if frame.time_s >= own_s and over.is_set():
            return
        yield frame


def _result(
    clip: Clip, heard: HeardRecording, ahead: Ahead, satellite_area: str | None, cpu_s: float, others: float | None
) -> ClipResult:
    actions = tuple(
        Action(trace.understanding.intent, dict(trace.understanding.slots))
        for trace in heard.utterances
        if trace.understanding is not None and trace.understanding.intent is not None
    )
    verdict = judge(clip, actions, satellite_area)
    chosen = heard.chosen
    cut = any(_is_cut(trace, clip.speech_end_s) for trace in heard.utterances)
    answered = chosen is not None and chosen.first_audio_s is not None
    return ClipResult(
        clip=clip,
        heard=" ".join(trace.text for trace in heard.utterances if trace.text),
        actions=actions,
        right=verdict.right and heard.error is None,
        wrong_action=verdict.wrong_action,
        cut=cut,
        split=Split.of(chosen, clip.speech_end_s) if chosen is not None and answered and not cut else None,
        endpoint_reason=None if chosen is None else chosen.endpoint_reason,
        reply=None if chosen is None else chosen.reply,
        cpu_s=cpu_s,
        others_cores=others,
        ahead=ahead,
        dropped_frames=heard.dropped_frames,
        error=heard.error,
    )


def _is_cut(trace: UtteranceTrace, speech_end_s: float) -> bool:
    return trace.endpoint_s is not None and trace.endpoint_s < speech_end_s - CUT_S


def _between_ms(start_s: float | None, stop_s: float | None) -> float | None:
    return None if start_s is None or stop_s is None else (stop_s - start_s) * 1000.0


def _words(*parts: str | None) -> str:
    return " ".join(part for part in parts if part)
