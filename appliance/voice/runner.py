"""Two ways to run a session: a simulated clock for recordings, threads and the real clock for live sound.

The session's code is the same in both. In the simulation the session and its worker are two servers with queues:
a piece of work takes, on the simulated clock, the wall time that it really took.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from appliance.audio.frame import Frame, Samples
from appliance.voice import loop
from appliance.voice.breaker import Breaker
from appliance.voice.meter import SessionMeter
from appliance.voice.session import Message, Post, Session

__all__ = ["LiveRunner", "SimulatedPlayer", "SimulatedRunner"]

_LOG = logging.getLogger(__name__)


class SimulatedRunner:
    """Runs a session over a recording as fast as it can, with the times of a live run.

    A time is the audio clock plus the compute measured: frames arrive when they would, work queues up behind
    work (and is run only when its turn has come, so that what was cancelled by then costs nothing), and results
    are delivered between the frames that were due before and after them.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` measures the compute; `time.thread_time` leaves out what other programs take of the machine."""
        self.meter: SessionMeter | None = None
        self._clock = clock
        self._session: Session | None = None
        self._now_s = 0.0
        self._free_s = 0.0
        self._worker_free_s = 0.0
        self._started: tuple[float, float] | None = None
        self._waiting: list[tuple[float, int, Message]] = []
        # No bound of its own: a session never has more than a few pieces of work in flight (see `LiveRunner.MAX_WORK`).
        self._work: deque[tuple[float, Callable[[Post], None]]] = deque()
        self._order = itertools.count()

    def attach(self, session: Session) -> None:
        """The session to run."""
        self._session = session

    def now(self) -> float:
        """Simulated seconds; runs on while work is being done."""
        if self._started is None:
            return self._now_s
        simulated_s, real_s = self._started
        return simulated_s + self._clock() - real_s

    def submit(self, work: Callable[[Post], None]) -> None:
        """Queue work for the simulated worker; its posts arrive as it makes them."""
        self._work.append((self.now(), work))

    def post(self, message: Message) -> None:
        """Deliver as soon as the session is free."""
        self.post_at(self.now(), message)

    def post_at(self, time_s: float, message: Message) -> None:
        """Deliver at a simulated time."""
        heapq.heappush(self._waiting, (time_s, next(self._order), message))

    def push(self, frame: Frame) -> None:
        """A frame arrives at its end time; what was due before is delivered before."""
        self.run_until(frame.end_s)
        session = self._attached()
        self._busy(frame.end_s, lambda: session.push(frame))

    def call(self, action: Callable[[], None]) -> None:
        """Do something to the session now (press the button)."""
        self._busy(self._now_s, action)

    def run_until(self, time_s: float) -> None:
        """Do everything that is due up to a time, in the order of time."""
        session = self._attached()
        while (due_s := self._next_s()) is not None and due_s <= time_s:
            if self._waiting and self._waiting[0][0] <= due_s:
                message_s, _, message = heapq.heappop(self._waiting)
                self._busy(message_s, lambda m=message: session.deliver(m))  # type: ignore[misc]
            else:
                self._run_work()

    def drain(self) -> None:
        """Do everything that is still due, in order."""
        while (due_s := self._next_s()) is not None:
            self.run_until(due_s)

    def _next_s(self) -> float | None:
        """When the next message is to be delivered or the next piece of work can start."""
        times = [self._waiting[0][0]] if self._waiting else []
        if self._work:
            times.append(max(self._work[0][0], self._worker_free_s))
        return min(times, default=None)

    def _run_work(self) -> None:
        submitted_s, work = self._work.popleft()
        start_s = max(submitted_s, self._worker_free_s)
        before_s = self._now_s
        self._started = (start_s, self._clock())
        try:
            work(lambda message: self.post_at(self.now(), message))
        finally:
            self._worker_free_s = self.now()
            # The session's own clock did not move while its worker worked.
            self._now_s, self._started = before_s, None

    def _busy(self, due_s: float, action: Callable[[], None]) -> None:
        self._now_s = max(due_s, self._free_s)
        self._started = (self._now_s, self._clock())
        action()
        self._now_s = self._free_s = self.now()
        self._started = None

    def _attached(self) -> Session:
        if self._session is None:
            raise RuntimeError("attach a session before running it")
        return self._session


class SimulatedPlayer:
    """A loudspeaker that takes as long as the sound: keeps what it played, posts `Played` at the right time."""

    def __init__(self, runner: SimulatedRunner) -> None:
        self._runner = runner
        self._generation = 0
        self._end_s = 0.0
        self.rate_hz = 0
        self.chunks: list[Samples] = []
        self.underruns = 0
        """Times that the next piece came after the one before had been played to its end."""

    def begin(self, generation: int, rate_hz: int) -> None:
        """A reply starts: what an earlier reply left is forgotten."""
        self._generation, self.rate_hz, self.chunks = generation, rate_hz, []
        self._end_s = self._runner.now()

    def write(self, samples: Samples) -> None:
        """Play after what is playing."""
        now_s = self._runner.now()
        if now_s > self._end_s and self.chunks:
            self.underruns += 1
        self._end_s = max(self._end_s, now_s) + samples.size / self.rate_hz
        self.chunks.append(samples)

    def finish(self) -> None:
        """Post `Played` when the last sample is out."""
        self._runner.post_at(max(self._end_s, self._runner.now()), loop.Played(self._generation))

    def stop(self) -> None:
        """Silence."""
        self._end_s = self._runner.now()


class LiveRunner:
    """A session thread and a worker thread on the monotonic clock.

    Three queues. Frames: bounded, full drops the oldest (late sound is worth less than new sound), counted.
    Messages: bounded, full makes the worker wait (a reply is made no faster than the session takes it). Calls:
    bounded, full refuses.

    Frames that fail again and again (a detector is broken) are let pass for a while: a circuit breaker of its own.
    """

    MAX_FRAMES: Final = 300
    MAX_MESSAGES: Final = 256
    MAX_WORK: Final = 64
    MAX_CALLS: Final = 64
    DUE_S: Final = 0.25
    """Between looks at whether what `call_at` was told is due."""

    def __init__(
        self,
        session_of: Callable[[LiveRunner], Session],
        *,
        epoch_s: float = 0.0,
        meter: SessionMeter | None = None,
        paced: bool = False,
    ) -> None:
        """`epoch_s` is the monotonic time that counts as 0; frames pushed must carry times on the same clock. `paced`
        says that they come from a device of this machine, at its pace: their times then tell how late they are heard.
        """
        self._epoch_s = epoch_s
        self.meter = meter
        """What is told of the ages of frames and work."""
        self._paced = paced
        self._least_age_s = float("inf")
        self._ears = Breaker()
        self._due: tuple[float, Callable[[], None]] | None = None
        self._frames: deque[tuple[Frame, float]] = deque(maxlen=self.MAX_FRAMES)
        self._messages: queue.Queue[Message] = queue.Queue(self.MAX_MESSAGES)
        self._work: queue.Queue[tuple[Callable[[Post], None], float] | None] = queue.Queue(self.MAX_WORK)
        self._wakeup = threading.Semaphore(0)
        self._calls: deque[Callable[[], None]] = deque()  # `call` refuses where `MAX_CALLS` wait
        self._closing = threading.Event()
        self.dropped_frames = 0
        """Frames lost because the session could not keep up."""
        self.deaf_frames = 0
        """Frames let pass because hearing had failed."""
        self._hurry = False
        self._session = session_of(self)
        self._threads = [
            threading.Thread(target=self._run_session, name=f"{self._session.name}-session", daemon=True),
            threading.Thread(target=self._run_worker, name=f"{self._session.name}-worker", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def session(self) -> Session:
        """The session that is run; only its thread may call into it (use `call`)."""
        return self._session

    @property
    def in_a_hurry(self) -> bool:
        """Whether the session has something going on: frames are then to be handed in as they come. Any thread; one
        attribute, so that an audio callback may ask."""
        return self._hurry

    def now(self) -> float:
        """Monotonic seconds since the epoch."""
        return time.monotonic() - self._epoch_s

    def push(self, frame: Frame) -> None:
        """Hand in 10 ms from any thread; never waits."""
        if len(self._frames) == self.MAX_FRAMES:
            self.dropped_frames += 1
        self._frames.append((frame, self.now()))
        self._wakeup.release()

    def call(self, action: Callable[[], None]) -> bool:
        """Do something to the session on its own thread; False (refused, and logged) where too much waits already."""
        if len(self._calls) >= self.MAX_CALLS:
            _LOG.warning("session %s: %d calls wait; one more is refused", self._session.name, self.MAX_CALLS)
            return False
        self._calls.append(action)
        self._wakeup.release()
        return True

    def deliver(self, message: Message) -> None:
        """Hand the session a message at once; only on its thread."""
        self._session.deliver(message)

    def submit(self, work: Callable[[Post], None]) -> None:
        """Run work on the worker thread."""
        self._work.put((work, self.now()))

    def post(self, message: Message) -> None:
        """Deliver a message on the session's thread."""
        while not self._closing.is_set():
            try:
                self._messages.put(message, timeout=0.2)
            except queue.Full:
                continue
            self._wakeup.release()
            return

    def call_at(self, time_s: float, action: Callable[[], None]) -> None:
        """Do something on the session's thread at a time, in place of what was to be done before (there is one at a
        time). To be called on that thread."""
        self._due = (time_s, action)

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop both threads; what is waiting is dropped."""
        self._closing.set()
        self._wakeup.release()
        self._work.put(None)
        for thread in self._threads:
            thread.join(timeout_s)

    def _run_session(self) -> None:
        while not self._closing.is_set():
            rung = self._wakeup.acquire(timeout=None if self._due is None else self.DUE_S)
            try:
                # First: who is rung and takes nothing leaves it lying; and it may be the end that is waited for.
                if rung:
                    self._take_one()
                if self._due is not None and self.now() >= self._due[0]:
                    (_, action), self._due = self._due, None
                    action()
            except Exception:  # noqa: BLE001 - the last line of defence
                # The last line of defence: one bad frame must not end the session's thread, and must be seen.
                _LOG.exception("session %s: a frame or message could not be handled", self._session.name)
                self._stop()
            self._hurry = not self._session.at_rest

    def _stop(self) -> None:
        try:
            self._session.stop()
        except Exception:  # noqa: BLE001 - told; a speaker that is gone must not end the thread either
            _LOG.exception("session %s: what went on could not be stopped", self._session.name)

    def _take_one(self) -> None:
        """Messages before frames: a result is older than the sound that waits."""
        if self._calls:
            self._calls.popleft()()
            return
        try:
            message = self._messages.get_nowait()
        except queue.Empty:
            if self._frames:
                self._hear(*self._frames.popleft())
            return
        self._session.deliver(message)

    def _hear(self, frame: Frame, pushed_s: float) -> None:
        now_s = self.now()
        if not self._ears.allows(now_s):
            self.deaf_frames += 1
            return
        if self.meter is not None:
            self.meter.frame_age_s = self._age_s(frame, pushed_s, now_s)
        try:
            self._session.push(frame)
        except Exception:
            self._ears.failed(self.now())
            raise  # to be told, and to stop what goes on, where all faults are
        if self._ears.failures:
            self._ears.succeeded()

    def _age_s(self, frame: Frame, pushed_s: float, now_s: float) -> float:
        """How late a frame is heard: beyond what is usual here, or, where it came over a network, since it came."""
        if not self._paced:
            return now_s - pushed_s
        age_s = now_s - frame.end_s
        # Buffers of the device make the least; a clock that drifts may raise it by a millisecond a second.
        self._least_age_s = min(age_s, self._least_age_s + 1e-5)
        return age_s - self._least_age_s

    def _run_worker(self) -> None:
        while (item := self._work.get()) is not None and not self._closing.is_set():
            work, submitted_s = item
            if self.meter is not None:
                self.meter.work_age_s = self.now() - submitted_s
            try:
                work(self.post)
            except Exception:  # noqa: BLE001
                # Stages turn their own faults into messages; whatever gets past that must not end the worker.
                _LOG.exception("session %s: a piece of work failed", self._session.name)
