"""Model packs as something to update: what is shown is what the store holds, and installing brings what is absent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.errors import UsageError
from appliance.model_packs import LOOK_S, ModelPacks
from models.errors import FetchError
from tests.models.conftest import Made, made

__all__ = ["made"]

PACKS = ("made-voice", "made-library")


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def until(true: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 10.0
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def packs(made: Made, clock: Clock) -> ModelPacks:
    return ModelPacks(made.store, PACKS, clock)


def test_what_is_absent_is_shown_and_installed_with_its_progress(made: Made, packs: ModelPacks) -> None:
    before = packs.versions()
    assert before.installed == f"{before.latest}, without 1 of 2 packs"
    assert packs.can_install
    under_way, go_on = threading.Event(), threading.Event()

    def slow(_: Path) -> None:
        under_way.set()
        assert go_on.wait(10.0)

    made.fetcher.trouble = slow
    packs.install()
    assert under_way.wait(10.0)
    assert packs.versions().busy
    with pytest.raises(UsageError, match="already"):
        packs.install()
    go_on.set()
    until(lambda: not packs.versions().busy)
    after = packs.versions()
    assert after.installed == after.latest == before.latest
    assert not packs.can_install
    assert packs.trouble is None
    with pytest.raises(UsageError, match="all model packs are here"):
        packs.install()


def test_the_percentage_never_falls(made: Made, packs: ModelPacks, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def ensure(_pack: str, progress: Callable[[str, int, int | None], None]) -> None:
        for stage, done, total in [("a", 0, None), ("a", 5, 10), ("a", 10, 10), ("b", 1, 4), ("b", 4, 4)]:
            progress(stage, done, total)
            seen.append(packs.versions().percent or 0.0)

    packs.versions()
    monkeypatch.setattr(made.store, "ensure", ensure)
    packs.install()
    until(lambda: not packs.versions().busy)
    assert seen == [0.0, 50.0, 100.0, 100.0, 100.0]


def test_what_goes_wrong_is_told_and_can_be_tried_again(made: Made, packs: ModelPacks) -> None:
    def fail(_: Path) -> None:
        raise FetchError("the registry does not answer")

    made.fetcher.trouble = fail
    packs.install()
    until(lambda: packs.trouble is not None and not packs.versions().busy)
    assert "does not answer" in str(packs.trouble)
    made.fetcher.trouble = None
    packs.install()
    until(lambda: not packs.versions().busy)
    assert packs.trouble is None
    assert not packs.can_install


def test_what_somebody_removes_is_noticed(made: Made, packs: ModelPacks, clock: Clock) -> None:
    packs.install()
    until(lambda: not packs.versions().busy)
    made.store.remove("made-voice")
    assert not packs.can_install, "the store is not looked through at every question"
    clock.now_s += LOOK_S
    assert packs.can_install
