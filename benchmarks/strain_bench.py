"""What watching costs where nothing is strained: CPU time a frame and a call, against the same without it."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from appliance.audio.frame import FRAME_SAMPLES, Frame
from appliance.strain import Strain
from appliance.voice.meter import Metered

TIMES = 20_000
CALLS = 2_000
ROUNDS = 7


class _Nothing:
    """A detector that does nothing."""

    def push(self, frame: Frame) -> tuple[()]:
        return ()

    def reset(self) -> None:
        return None


def _each_us(work: Callable[[], object], times: int) -> float:
    """Median microseconds of the whole process's CPU time."""
    found = []
    for _ in range(ROUNDS):
        begun_s = time.process_time()
        for _ in range(times):
            work()
        found.append((time.process_time() - begun_s) / times * 1e6)
    return float(np.median(found))


def _wall_us(work: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        begun_s = time.perf_counter()
        work()
        found.append((time.perf_counter() - begun_s) * 1e6)
    return float(np.median(found))


def main() -> None:
    """Print the rows."""
    strain = Strain(())
    meter = strain.meter()
    guard = strain.guard("local", meter)
    plain, metered = _Nothing(), Metered("vad", _Nothing(), meter)
    frame = Frame(np.zeros(FRAME_SAMPLES, np.float32), 0.0, 0)
    alone_us, with_us = _each_us(lambda: plain.push(frame), TIMES), _each_us(lambda: metered.push(frame), TIMES)
    print(f"a metered detector, a frame (reports included): {with_us - alone_us:.2f} us CPU")
    report_us = _each_us(lambda: meter.report("vad", 0.01, 0.5, 0.0), CALLS)
    print(f"a report with its look at the ladder: {report_us:.1f} us CPU")
    nothing: Callable[[], None] = lambda: None  # noqa: E731 - a call of nothing, by name
    print(f"a guarded call (limit, breaker): {_each_us(lambda: guard.call('intent', nothing, 1.0), CALLS):.1f} us CPU")
    print(f"a guarded call on the clock: {_wall_us(lambda: guard.call('intent', nothing, 1.0), CALLS):.1f} us")


if __name__ == "__main__":
    main()
