from __future__ import annotations

import sys
import threading
import time
from collections import deque

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from appliance.audio.spsc import BlockRing, Doorbell, SampleRing

_STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=60)


@given(st.integers(1, 32), _STEPS)
def test_whatever_the_order_of_writes_and_reads_samples_come_out_once_and_in_order(
    capacity: int, steps: list[tuple[bool, int]]
) -> None:
    ring = SampleRing(capacity)
    model: deque[float] = deque()
    written = 0
    for writes, count in steps:
        if writes:
            taken = ring.write(np.arange(written, written + count, dtype=np.float32))
            assert taken == min(count, capacity - len(model))
            model.extend(range(written, written + taken))
            written += taken
        else:
            out = np.full(count, -1.0, dtype=np.float32)
            got = ring.read_into(out)
            assert got == min(count, len(model))
            assert out[:got].tolist() == [model.popleft() for _ in range(got)]
        assert ring.available == len(model)
        assert ring.space == capacity - len(model)
        assert ring.written == written


@given(st.integers(1, 64), st.integers(1, 6), _STEPS)
def test_a_full_ring_drops_the_new_block_whole_and_says_so_with_the_next(
    capacity: int, max_blocks: int, steps: list[tuple[bool, int]]
) -> None:
    ring = BlockRing(capacity, max_blocks)
    model: deque[tuple[list[float], float, int]] = deque()
    used = lost = overruns = number = 0
    for writes, count in steps:
        if writes:
            samples = np.arange(number, number + count, dtype=np.float32)
            fits = len(model) < max_blocks and used + count <= capacity
            assert ring.write(samples, float(number), 0.5) is fits
            if fits:
                model.append((samples.tolist(), float(number), lost))
                used += count
                lost = 0
            else:
                lost += count
                overruns += 1
            number += count + 1
        else:
            block = ring.read()
            if not model:
                assert block is None
                continue
            assert block is not None
            expected, arrival_s, dropped = model.popleft()
            used -= len(expected)
            assert block.samples.tolist() == expected
            assert (block.arrival_s, block.age_s, block.dropped) == (arrival_s, 0.5, dropped)
    assert ring.overruns == overruns


def test_two_threads_that_cut_in_on_each_other_all_the_time_lose_nothing_unseen() -> None:
    ring = BlockRing(977, 13)
    blocks: list[tuple[np.ndarray, int]] = []
    done = threading.Event()
    sent = 0

    def produce() -> None:
        nonlocal sent
        rng = np.random.default_rng(3)
        for _ in range(8000):
            size = int(rng.integers(1, 200))
            ring.write(np.arange(sent, sent + size, dtype=np.float32), 0.0, 0.0)
            sent += size
        done.set()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread = threading.Thread(target=produce)
        thread.start()
        while True:
            over = done.is_set()  # asked before the last look
            block = ring.read()
            if block is not None:
                blocks.append((block.samples, block.dropped))
            elif over:
                break
        thread.join()
    finally:
        sys.setswitchinterval(before)
    at = 0
    for samples, dropped in blocks:
        at += dropped
        assert np.array_equal(samples, np.arange(at, at + samples.size, dtype=np.float32))
        at += samples.size
    assert at <= sent


def test_a_doorbell_rung_before_or_while_somebody_waits_wakes_once() -> None:
    bell = Doorbell()
    bell.ring()
    bell.ring()
    assert bell.wait(0.0)
    assert not bell.wait(0.0)
    threading.Timer(0.05, bell.ring).start()
    began_s = time.monotonic()
    assert bell.wait(5.0)
    assert time.monotonic() - began_s < 2.0
