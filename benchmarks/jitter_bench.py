"""The depth controller beside fixed buffers, in seeded simulation. Markdown on standard output.

    .venv/bin/python benchmarks/jitter_bench.py [--minutes 10] [--seeds 5]

Sound of 20 ms a piece comes over a link that keeps its order; it is played frame by frame. Compared are the jitter
buffer on its controller, and the same buffer at a fixed depth, without stretching, in both ways that fixed buffers
are built: `waits` pauses until late sound comes and plays all of it, `drops` goes on in time and throws it away.
Then replies: chunks as planned beside chunks that follow the voice's pace, where the voice is slow or stalls.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from appliance.audio.adaptive import NETWORK, DepthController, DepthSettings
from appliance.audio.frame import FRAME_S, RATE_HZ, Samples
from appliance.audio.jitter import JitterBuffer
from appliance.voice.tts.pace import Ahead, VoicePace
from appliance.voice.tts.piper import ChunkPlan

PIECE = RATE_HZ // 50
PIECE_S = PIECE / RATE_HZ
FIXED_MS = (60, 120, 200)

Link = Callable[[np.random.Generator, int], np.ndarray]


def uniform(random: np.random.Generator, pieces: int) -> np.ndarray:
    """Each piece between 0 and 50 ms late."""
    return random.uniform(0.0, 0.05, pieces)


def _stalling(random: np.random.Generator, pieces: int, calm_s: float) -> np.ndarray:
    """Calm (up to 8 ms) for so long in the mean, then for 8 s stalls of 50 to 250 ms with 200 ms between them."""
    late = random.uniform(0.0, 0.008, pieces)
    at = 0.0
    while (at := at + random.exponential(calm_s)) < pieces * PIECE_S:
        until = at + random.exponential(8.0)
        while at < until:
            stall_s = random.uniform(0.05, 0.25)
            # What is sent in the stall comes when it ends.
            for piece in range(int(at / PIECE_S), min(pieces, int((at + stall_s) / PIECE_S))):
                late[piece] = max(late[piece], at + stall_s - piece * PIECE_S)
            at += stall_s + random.exponential(0.2)
    return late


def bursty(random: np.random.Generator, pieces: int) -> np.ndarray:
    """Trouble every two minutes in the mean, as somebody else's download makes it."""
    return _stalling(random, pieces, 120.0)


def troubled(random: np.random.Generator, pieces: int) -> np.ndarray:
    """The same trouble every twenty seconds."""
    return _stalling(random, pieces, 20.0)


def drifting(random: np.random.Generator, pieces: int) -> np.ndarray:
    """Up to 20 ms late, on a way that becomes 60 ms longer and shorter within a minute."""
    at = np.arange(pieces) * PIECE_S
    return random.uniform(0.0, 0.02, pieces) + 0.03 * (1.0 - np.cos(2.0 * np.pi * at / 60.0))


def true_clock(pieces: int) -> np.ndarray:
    """Seconds by which a piece leaves late: the sender's clock is the player's."""
    return np.zeros(pieces)


def slow_and_fast(pieces: int) -> np.ndarray:
    """A sender whose clock runs 200 ppm fast for the first half, and as much slow for the other."""
    rate = np.where(np.arange(pieces) < pieces // 2, -200e-6, 200e-6)
    return np.cumsum(rate) * PIECE_S


CLOCKS = {"drifting": slow_and_fast}
LINKS: dict[str, Link] = {"uniform": uniform, "bursty": bursty, "troubled": troubled, "drifting": drifting}


@dataclass(frozen=True)
class Outcome:
    """What a listener had of it."""

    underruns: float
    """Pauses in 10 minutes."""
    lost_ms: float
    """Sound not heard, in 10 minutes."""
    delay_ms: float
    """Mean, from when a sample left its sender to when it is played."""


def voice(pieces: int) -> Samples:
    """A stand-in for speech: a vowel that swells and fades, with pauses; stretched as speech is."""
    at = np.arange(pieces * PIECE) / RATE_HZ
    tone = sum(np.sin(2.0 * np.pi * 120.0 * k * at) / k for k in range(1, 6))
    swell = np.clip(np.sin(2.0 * np.pi * at / 1.7) + 0.4, 0.0, 1.0)
    return (0.2 * np.asarray(tone) * swell).astype(np.float32)


def play(buffer: JitterBuffer, late_s: np.ndarray, off_s: np.ndarray, sound: Samples) -> Outcome:
    """Play a stream; `late_s` and `off_s` (the sender's clock) [n], one for each piece."""
    sent_s = np.arange(late_s.size) * PIECE_S + off_s
    came_s = np.maximum.accumulate(sent_s + late_s)
    delays: list[float] = []
    piece = concealed = 0
    for now_s in np.arange(0.0, sent_s[-1], FRAME_S):
        while piece < came_s.size and came_s[piece] <= now_s:
            at = piece * PIECE
            buffer.put(at, sound[at : at + PIECE], float(came_s[piece]))
            piece += 1
        place = buffer.played
        buffer.pull(float(now_s))
        before, concealed = concealed, buffer.stats().concealed
        if concealed == before:
            delays.append(float(now_s) - place / RATE_HZ - off_s[place // PIECE])
    stats = buffer.stats()
    scale = 600.0 / float(sent_s[-1])
    lost_ms = 1000.0 * (stats.missing + stats.late) / RATE_HZ
    return Outcome(stats.underruns * scale, lost_ms * scale, 1000.0 * float(np.mean(delays)))


def adaptive() -> JitterBuffer:
    """As it runs."""
    return JitterBuffer(DepthController(NETWORK))


def fixed(depth_s: float, *, drops: bool) -> JitterBuffer:
    """As most are built."""
    settings = DepthSettings(first_s=depth_s, least_s=depth_s, most_s=depth_s)
    return JitterBuffer(DepthController(settings), stretch=False, hold=not drops)


def buffers() -> Iterator[tuple[str, Callable[[], JitterBuffer]]]:
    """What is compared."""
    yield "controller", adaptive
    for depth_ms in FIXED_MS:
        yield f"{depth_ms} ms, waits", lambda d=depth_ms: fixed(d / 1000.0, drops=False)  # type: ignore[misc]
        yield f"{depth_ms} ms, drops", lambda d=depth_ms: fixed(d / 1000.0, drops=True)  # type: ignore[misc]


def compare(link: str, minutes: float, seeds: Sequence[int], *, drops_only: bool = False) -> dict[str, Outcome]:
    """Means over the seeds; the same arrivals for every buffer. `drops_only` leaves out those that wait."""
    pieces = round(minutes * 60.0 / PIECE_S)
    sound, off_s = voice(pieces), CLOCKS.get(link, true_clock)(pieces)
    outcomes: dict[str, Outcome] = {}
    for name, make in buffers():
        if drops_only and name.endswith("waits"):
            continue
        arrivals = (LINKS[link](np.random.default_rng(seed), pieces) for seed in seeds)
        runs = [play(make(), late_s, off_s, sound) for late_s in arrivals]
        outcomes[name] = Outcome(
            float(np.mean([run.underruns for run in runs])),
            float(np.mean([run.lost_ms for run in runs])),
            float(np.mean([run.delay_ms for run in runs])),
        )
    return outcomes


HOP_S = 256 / 22_050
REPLY = 250
REPLIES = 20


def speak(pace: VoicePace | None, plan: ChunkPlan, frame_s: float, stalls: Iterator[float]) -> tuple[float, float]:
    """Make and play one reply; seconds until its first sound, and of pauses in it. A pace of None: as planned."""
    now_s = late_s = first_s = due_s = 0.0
    ahead = Ahead()
    at = number = 0
    while at < REPLY:
        size = plan.planned(number)
        if pace is not None:
            size = pace.frames(size, plan.rest, ahead.seconds(now_s))
        size = min(size, REPLY - at)
        cost_s = frame_s * (size + plan.overlap_frames) + next(stalls)
        if pace is not None:
            pace.made(size, cost_s)
        now_s += cost_s
        if at:
            late_s += max(0.0, now_s - due_s)
        else:
            first_s = now_s
        due_s = max(now_s, due_s) + size * HOP_S
        ahead.given(now_s, size * HOP_S)
        at, number = at + size, number + 1
    return first_s, late_s


def replies() -> None:
    """Print the table of replies."""
    print("| voice, of real time | stall in every fourth chunk | chunks | first sound, ms | pauses in a reply, ms |")
    print("|---|---|---|---|---|")
    plan = ChunkPlan()
    for rtf, stall_ms in itertools.product((0.15, 0.4, 0.7, 1.0), (0, 50, 200, 500)):
        for name in ("as planned", "by pace"):
            pace = VoicePace(HOP_S, plan.overlap_frames) if name == "by pace" else None
            stalls = itertools.cycle((0.0, stall_ms / 1000.0, 0.0, 0.0))
            # The first two replies are those it learns from.
            runs = [speak(pace, plan, rtf * HOP_S, stalls) for _ in range(REPLIES + 2)][2:]
            first_ms, late_ms = (1000.0 * float(np.mean(column)) for column in zip(*runs, strict=True))
            print(f"| {rtf:g} | {stall_ms} ms | {name} | {first_ms:.0f} | {late_ms:.0f} |")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    print("| link | buffer | underruns in 10 min | sound lost, ms in 10 min | mean delay, ms |")
    print("|---|---|---|---|---|")
    for link in LINKS:
        for name, outcome in compare(link, arguments.minutes, range(arguments.seeds)).items():
            figures = f"{outcome.underruns:.1f} | {outcome.lost_ms:.0f} | {outcome.delay_ms:.0f}"
            print(f"| {link} | {name} | {figures} |")
    print()
    replies()


if __name__ == "__main__":
    main()
