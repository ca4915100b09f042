"""A conversion is done once, kept whole, and done again when something it rests on has changed."""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from models import Store, files
from models.convert import needs_conversion, open_artefact, prepare
from models.convert.build import Build
from models.errors import ArtefactError, ConversionError, PackCorruptError, PackMissingError, StoreFullError
from models.store import InstalledPack

PREPARE = sys.modules["models.convert.prepare"]  # the package has a function of that name


@dataclass
class FakeRecipe:
    """Turns the pack's file around; counts, and can do something worse first."""

    calls: int = 0
    trouble: Callable[[Build], None] | None = None

    def convert(self, pack: InstalledPack, work: Path, build: Build) -> None:
        self.calls += 1
        with build.stage(1, 2, "turn around"):
            (work / "on_the_way").write_bytes(b"x" * 1000)
            build.graph("net", "fp32").write_bytes(pack.path("net.onnx").read_bytes()[::-1])
            build.graph("net", "int8").write_bytes(b"small")
            if self.trouble is not None:
                self.trouble(build)
        with build.stage(2, 2, "compare with the original"):
            build.checks["difference"] = 1e-6
            build.parameters["margin_frames"] = 7


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRecipe]:
    fake = FakeRecipe()
    module = ModuleType("fake_recipe")
    module.convert = fake.convert  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fake_recipe", module)
    monkeypatch.setitem(PREPARE._RECIPES, "made-voice", PREPARE.Recipe("fake_recipe", version=1, work_bytes=10_000))
    return fake


@pytest.fixture
def store(made: Any) -> Store:
    made.store.ensure("made-voice")
    return made.store


def _artefacts(store: Store) -> list[Path]:
    folder = store.root / "artefacts" / "made-voice"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def test_the_result_and_how_it_was_made_are_kept(made: Any, store: Store, recipe: FakeRecipe) -> None:
    artefact = prepare(store, "made-voice")
    assert artefact.path("net", "fp32").read_bytes() == made.content["net.onnx"][::-1]
    record = json.loads((artefact.folder / "artefact.json").read_text())
    assert record["checks"] == {"difference": 1e-6}
    assert record["parameters"] == {"margin_frames": 7}
    assert record["inputs"].keys() == made.content.keys()
    assert record["seconds"].keys() == {"turn around", "compare with the original"}
    assert record["tools"].keys() == {"numpy", "onnx", "onnxruntime"}
    assert {p.name for p in artefact.folder.iterdir()} == {"artefact.json", "net.fp32.onnx", "net.int8.onnx"}


def test_it_is_done_once_and_progress_is_told(store: Store, recipe: FakeRecipe) -> None:
    said: list[tuple[str, int, int | None]] = []
    prepare(store, "made-voice", lambda *step: said.append(step))
    assert ("convert: turn around", 0, 2) in said
    assert said[-1] == ("convert: compare with the original", 2, 2)
    said.clear()
    prepare(store, "made-voice", lambda *step: said.append(step))
    assert recipe.calls == 1
    assert said == []


def test_opening_converts_nothing_and_says_what_to_do(store: Store, recipe: FakeRecipe) -> None:
    with pytest.raises(PackMissingError, match="wren models fetch made-voice"):
        open_artefact(store, "made-voice")
    assert recipe.calls == 0
    prepare(store, "made-voice")
    assert open_artefact(store, "made-voice").manifest.parameters == {"margin_frames": 7}


def test_a_pack_that_is_not_there_is_not_converted(made: Any, recipe: FakeRecipe) -> None:
    with pytest.raises(PackMissingError, match="wren models fetch"):
        prepare(made.store, "made-voice")
    assert recipe.calls == 0


def test_a_pack_used_as_shipped_has_no_conversion(store: Store) -> None:
    assert not needs_conversion("silero-vad")
    assert needs_conversion("moonshine-base-en")
    with pytest.raises(ArtefactError, match="as it is shipped"):
        prepare(store, "made-voice")


def test_asking_for_a_part_there_is_not_names_those_there_are(store: Store, recipe: FakeRecipe) -> None:
    with pytest.raises(ArtefactError, match="'net' at 'fp16'; there are: net fp32, net int8"):
        prepare(store, "made-voice").path("net", "fp16")


@pytest.mark.parametrize("what", ["version", "tools"])
def test_another_recipe_or_tool_makes_it_anew_and_removes_the_old(
    store: Store, recipe: FakeRecipe, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    old = prepare(store, "made-voice").folder
    if what == "version":
        newer = PREPARE.Recipe("fake_recipe", version=2, work_bytes=10_000)
        monkeypatch.setitem(PREPARE._RECIPES, "made-voice", newer)
    else:
        monkeypatch.setattr(PREPARE, "_tools", lambda: {"onnxruntime": "99"})
    new = prepare(store, "made-voice").folder
    assert recipe.calls == 2
    assert new != old
    assert _artefacts(store) == [new]


@pytest.mark.parametrize("name", ["net.int8.onnx", "artefact.json"])
def test_a_truncated_file_or_record_is_made_anew_with_notice(store: Store, recipe: FakeRecipe, name: str) -> None:
    os.truncate(prepare(store, "made-voice").folder / name, 3)
    with pytest.raises(PackCorruptError, match=f"{name}.*wren models fetch made-voice"):
        open_artefact(store, "made-voice")
    said: list[str] = []
    artefact = prepare(store, "made-voice", lambda stage, done, total: said.append(stage))
    assert artefact.path("net", "int8").read_bytes() == b"small"
    assert any("damaged" in line for line in said)


def test_a_flipped_byte_is_found_before_use_and_mended_when_asked(store: Store, recipe: FakeRecipe) -> None:
    path = prepare(store, "made-voice").path("net", "int8")
    path.write_bytes(b"smalL")
    artefact = prepare(store, "made-voice")
    assert artefact.path("net", "fp32")
    with pytest.raises(PackCorruptError, match=r"net.int8.onnx.*wren models fetch"):
        artefact.path("net", "int8")
    assert prepare(store, "made-voice", verify=True).path("net", "int8").read_bytes() == b"small"
    assert recipe.calls == 2


def test_a_conversion_that_does_not_match_leaves_nothing(store: Store, recipe: FakeRecipe) -> None:
    def mismatch(build: Build) -> None:
        raise ConversionError("a logit is 3 off")

    recipe.trouble = mismatch
    with pytest.raises(ConversionError):
        prepare(store, "made-voice")
    assert _artefacts(store) == []
    assert list((store.root / "tmp").iterdir()) == []


def test_no_room_is_told_before_and_on_the_way(
    store: Store, recipe: FakeRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(build: Build) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    recipe.trouble = full
    with pytest.raises(StoreFullError, match=r"the conversion of A made voice.*10000 bytes needed"):
        prepare(store, "made-voice")
    assert recipe.calls == 1
    assert _artefacts(store) == []
    monkeypatch.setattr(files, "HEADROOM", 1 << 60)
    with pytest.raises(StoreFullError):
        prepare(store, "made-voice")
    assert recipe.calls == 1


def test_two_at_once_convert_once(made: Any, store: Store, recipe: FakeRecipe) -> None:
    recipe.trouble = lambda build: time.sleep(0.3)
    threads = [threading.Thread(target=prepare, args=(s, "made-voice")) for s in (store, made.again())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert recipe.calls == 1
    assert open_artefact(store, "made-voice")


def test_removing_the_pack_removes_what_was_made_of_it(store: Store, recipe: FakeRecipe) -> None:
    prepare(store, "made-voice")
    store.remove("made-voice")
    assert _artefacts(store) == []
