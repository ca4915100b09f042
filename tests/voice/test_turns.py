"""Sessions that compete: who may work ahead, whose recognition is next; nobody starves."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.voice.asr.protocol import Cancel, Cancelled
from appliance.voice.turns import CrowdedError, Lead, Turns


def test_alone_anyone_may_work_ahead_and_of_several_only_one() -> None:
    lead = Lead("local")
    assert lead.leads("browser")
    lead.began("browser")
    lead.began("browser-2")
    assert [lead.leads(name) for name in ("browser", "browser-2")] == [True, False]
    lead.began("local")
    assert [lead.leads(name) for name in ("browser", "browser-2", "local")] == [False, False, True]
    lead.ended("local")
    lead.ended("browser")
    assert lead.leads("browser-2")


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["local", "a", "b", "c"])), max_size=60))
def test_of_those_that_converse_exactly_one_leads(story: list[tuple[bool, str]]) -> None:
    lead, busy = Lead("local"), set()
    for began, name in story:
        (lead.began if began else lead.ended)(name)
        (busy.add if began else busy.discard)(name)
        assert lead.busy == len(busy)
        if busy:
            assert sum(lead.leads(name) for name in busy) == 1


class _Queue:
    """One slot that is taken, and waiting threads that note when their turn came."""

    def __init__(self, slots: int = 1) -> None:
        self.clock_s = 0.0
        self.turns = Turns(slots, lambda: self.clock_s)
        self.order: list[str] = []
        self.threads: list[threading.Thread] = []
        self.waiting = 0

    def join(self, name: str, head_start_s: float) -> None:
        def wait() -> None:
            with self.turns.turn(head_start_s, 1000.0, Cancel()):
                self.order.append(name)

        self.threads.append(threading.Thread(target=wait))
        self.threads[-1].start()
        self.waiting += 1
        deadline_s = time.monotonic() + 10.0
        while len(self.turns._waiting) < self.waiting:
            assert time.monotonic() < deadline_s
            time.sleep(0.001)

    def done(self) -> list[str]:
        for thread in self.threads:
            thread.join(10.0)
        return self.order


def test_the_machines_own_microphone_goes_before_pages_but_not_for_ever() -> None:
    queue = _Queue()
    with queue.turns.turn(0.0, 1.0, Cancel()):
        queue.join("page", 0.0)
        queue.clock_s = 1.0
        queue.join("local", 2.0)
        queue.join("page-2", 0.0)
        queue.clock_s = 2.5
        queue.join("local again", 2.0)
    assert queue.done() == ["local", "page", "local again", "page-2"]


def test_who_waits_too_long_is_told_and_who_does_not_want_it_any_more_goes() -> None:
    turns = Turns(1)
    with turns.turn(0.0, 1.0, Cancel()):
        with pytest.raises(CrowdedError, match="say that again"), turns.turn(0.0, 0.01, Cancel()):
            pass
        cancel = Cancel()
        cancel.cancel()
        with pytest.raises(Cancelled), turns.turn(0.0, 10.0, cancel):
            pass
    assert turns.refused == 1
    with turns.turn(0.0, 0.01, Cancel()):
        pass


def test_no_more_run_at_once_than_there_are_slots() -> None:
    turns, running, most = Turns(2), [], []

    def work() -> None:
        with turns.turn(0.0, 30.0, Cancel()):
            running.append(1)
            most.append(len(running))
            time.sleep(0.005)
            running.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert len(most) == 8
    assert max(most) <= 2
