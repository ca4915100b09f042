"""The store's cap: least recently used first, artefacts before packs, never what any process has open."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from models import usage
from models.errors import ModelsError, StoreCapError
from tests.models.conftest import Made

SIZE = 1000


@pytest.fixture(autouse=True)
def nothing_in_use() -> Iterator[None]:
    usage.release_all()
    yield
    usage.release_all()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Packs a, b, c of a thousand bytes, each with an artefact of as many; used in the order c, a, b."""
    for age, pack_id in ((3, "c"), (2, "a"), (1, "b")):
        for kind in ("packs", "artefacts"):
            folder = tmp_path / kind / pack_id / "0123"
            folder.mkdir(parents=True)
            (folder / "net").write_bytes(bytes(SIZE))
        usage.mark_used(tmp_path, pack_id)
        lock = tmp_path / "locks" / f"{pack_id}.use.lock"
        os.utime(lock, (1e9 - age * 100, 1e9 - age * 100))
    usage.release_all()
    return tmp_path


def _there(root: Path) -> set[str]:
    return {f"{p.parent.parent.name}/{p.parent.name}" for k in ("packs", "artefacts") for p in (root / k).glob("*/*")}


def test_nothing_goes_while_there_is_room(root: Path) -> None:
    assert usage.keep_under_cap(root, SIZE, 7 * SIZE, "x") == []
    assert usage.keep_under_cap(root, SIZE, None, "x") == []


def test_artefacts_go_first_the_least_recently_used_before_others(root: Path) -> None:
    assert usage.keep_under_cap(root, 2 * SIZE, 6 * SIZE, "x") == ["artefacts/c", "artefacts/a"]
    assert usage.keep_under_cap(root, 4 * SIZE, 6 * SIZE, "x") == ["artefacts/b", "packs/c"]
    assert _there(root) == {"packs/a", "packs/b"}


def test_what_is_in_use_stays(root: Path) -> None:
    usage.mark_used(root, "c")
    assert usage.keep_under_cap(root, 3 * SIZE, 6 * SIZE, "x") == ["artefacts/a", "artefacts/b", "packs/a"]
    assert {"packs/c", "artefacts/c"} <= _there(root)


def test_what_another_process_uses_stays(root: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from models import usage;"
        "usage.mark_used(Path(sys.argv[1]), 'c'); print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    with pytest.raises(StoreCapError, match="no more of it may go"):
        usage.keep_under_cap(root, 5 * SIZE, 6 * SIZE, "x")
    assert len(_there(root)) == 6  # refused before anything went
    other.communicate("")
    assert len(usage.keep_under_cap(root, 5 * SIZE, 6 * SIZE, "x")) == 5


def test_what_never_fits_evicts_nothing(root: Path) -> None:
    with pytest.raises(StoreCapError, match="WREN_MODELS_MAX_BYTES"):
        usage.keep_under_cap(root, 7 * SIZE, 6 * SIZE, "x")
    assert len(_there(root)) == 6


def test_a_store_stays_under_its_cap_when_it_fetches(made: Made) -> None:
    old = made.store.root / "artefacts" / "old" / "0123"
    old.mkdir(parents=True)
    (old / "net").write_bytes(bytes(300_000))
    store = made.again()
    store.max_bytes = 600_000
    store.ensure("made-voice")
    assert not old.exists()
    assert usage.stored_bytes(store.root) <= 600_000
    store.remove("made-voice")
    store.max_bytes = 100_000
    with pytest.raises(StoreCapError):
        store.ensure("made-voice")


@pytest.mark.parametrize("value", ["lots", "-1", "0"])
def test_a_cap_that_is_no_number_is_said(value: str) -> None:
    with pytest.raises(ModelsError, match="WREN_MODELS_MAX_BYTES"):
        usage.cap_bytes({"WREN_MODELS_MAX_BYTES": value})
    assert usage.cap_bytes({}) is None
    assert usage.cap_bytes({"WREN_MODELS_MAX_BYTES": "5"}) == 5
