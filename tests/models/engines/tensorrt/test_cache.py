"""The cache: whole or absent, whatever is cut, changed or full."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from models.engines.tensorrt.cache import EngineCache, EngineManifest, Failure
from models.engines.tensorrt.key import BuildSettings, EngineKey
from models.errors import StoreCapError

PLAN = b"a plan" * 100
ROOT = Path(__file__).parents[4]


def key(**changed: Any) -> EngineKey:
    fields: dict[str, Any] = {
        "onnx_sha256": "0" * 64,
        "flavour": "tensorrt",
        "tensorrt": "10.3.0",
        "cuda": "12.6",
        "sm": "8.7",
        "gpu": "Orin",
        "module": "p3767-0005",
        "l4t": "36.4.4",
        "profiles": ({"x": ((1, 1), (1, 2), (1, 3))},),
        "settings": BuildSettings(),
    }
    return EngineKey(**(fields | changed))


def manifest(of: EngineKey, plan: bytes = PLAN) -> EngineManifest:
    return EngineManifest(
        name="made",
        key=of,
        size=len(plan),
        sha256=hashlib.sha256(plan).hexdigest(),
        built_at=time.time(),
        build_s=1.0,
        layers=3,
        log="",
        checks={"worst_snr_db": 60.0},
    )


def put(cache: EngineCache, of: EngineKey, plan: bytes = PLAN) -> None:
    with cache.building(of) as work:
        (work / "engine").write_bytes(plan)
        cache.put(work / "engine", manifest(of, plan))


@pytest.fixture
def cache(tmp_path: Path) -> EngineCache:
    return EngineCache(tmp_path / "engines", max_bytes=10_000)


@pytest.mark.parametrize(
    "changed",
    [
        {"onnx_sha256": "1" * 64},
        {"flavour": "tensorrt_rtx"},
        {"tensorrt": "10.3.1"},
        {"cuda": "12.9"},
        {"sm": "8.6"},
        {"gpu": "Orin NX"},
        {"module": "p3767-0000"},
        {"l4t": "36.5.0"},
        {"profiles": ({"x": ((1, 1), (1, 2), (1, 4))},)},
        {"profiles": ()},
        {"settings": BuildSettings(workspace_mib=256)},
        {"settings": BuildSettings(version_compatible=True)},
    ],
)
def test_whatever_an_engine_depends_on_changes_its_key(cache: EngineCache, changed: dict[str, Any]) -> None:
    put(cache, key())
    assert key(**changed).digest != key().digest
    assert cache.open(key(**changed)) is None
    assert cache.open(key()) is not None


COMPATIBLE = BuildSettings(version_compatible=True)


@pytest.mark.parametrize(
    ("wanted", "there", "takes"),
    [
        ({}, {"settings": BuildSettings(workspace_mib=256)}, True),
        ({}, {"settings": COMPATIBLE}, True),
        ({"settings": COMPATIBLE}, {}, True),
        ({"tensorrt": "10.13.3"}, {"settings": COMPATIBLE}, True),
        ({"tensorrt": "10.13.3"}, {}, False),
        ({"tensorrt": "10.2.0"}, {"settings": COMPATIBLE}, False),
        ({"tensorrt": "11.0.0"}, {"settings": COMPATIBLE}, False),
        ({"sm": "8.6"}, {"settings": COMPATIBLE}, False),
        ({"profiles": ()}, {"settings": COMPATIBLE}, False),
    ],
)
def test_what_serves_may_have_been_built_with_other_settings_or_to_be_taken_by_later_versions(
    cache: EngineCache, wanted: dict[str, Any], there: dict[str, Any], takes: bool
) -> None:
    put(cache, key(**there))
    (cache.folder / "quarantine.json").write_text("theirs")
    found = cache.open_like(key(**wanted))
    assert (found is not None) == takes
    assert cache.open(key(**wanted)) is None
    put(cache, key(**wanted), b"the very one")
    found = cache.open_like(key(**wanted))
    assert found is not None
    assert found.plan == b"the very one"


def test_all_that_the_key_holds_is_in_that_test() -> None:
    parameters = test_whatever_an_engine_depends_on_changes_its_key.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert {name for changed in parameters for name in changed} == EngineKey.model_fields.keys()


def test_an_engine_comes_back_as_it_was_put(cache: EngineCache) -> None:
    assert cache.open(key()) is None
    put(cache, key())
    found = cache.open(key())
    assert found is not None
    assert found.plan == PLAN
    assert found.manifest == manifest(key()).model_copy(update={"built_at": found.manifest.built_at})
    assert [row.status for row in cache.verify()] == ["ready"]


@pytest.mark.parametrize("damage", ["flip", "cut", "longer", "gone"])
def test_a_damaged_engine_is_none_and_is_seen(cache: EngineCache, damage: str) -> None:
    put(cache, key())
    path = cache.folder / f"{key().digest}.engine"
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"flip": b"b" + PLAN[1:], "cut": PLAN[:-1], "longer": PLAN + b"."}[damage])
    assert [row.status for row in cache.verify()] == ["damaged"]
    assert cache.open(key()) is None
    cache.prune()
    assert not cache.rows()


def test_a_record_that_cannot_be_read_is_seen_and_pruned(cache: EngineCache) -> None:
    put(cache, key())
    (cache.folder / f"{key().digest}.json").write_text("{")
    (cache.folder / f"{key(sm='8.6').digest}.failed.json").write_text("")
    assert {row.status for row in cache.verify()} == {"damaged"}
    assert cache.open(key()) is None
    assert len(cache.prune()) == 2
    assert not cache.rows()


KILLED = """
    import os, signal, sys
    from pathlib import Path
    sys.path.insert(0, {root!r})
    from models.engines.tensorrt.cache import EngineCache
    from tests.models.engines.tensorrt.test_cache import PLAN, key, manifest

    at = {at!r}
    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    cache = EngineCache(Path({folder!r}))
    with cache.building(key()) as work:
        (work / "engine").write_bytes(PLAN[:100] if at == "half" else PLAN)
        if at in ("half", "before"):
            die()
        if at == "between":
            cache._write = die
        if at == "manifest":
            Path.replace = die
        cache.put(work / "engine", manifest(key()))
        die()
"""


@pytest.mark.parametrize("at", ["half", "before", "between", "manifest", "after"])
def test_after_a_power_cut_there_is_a_whole_engine_or_none(tmp_path: Path, at: str) -> None:
    """Killed where it hurts: half written, before the rename, between plan and manifest, and right behind."""
    folder = tmp_path / "engines"
    code = textwrap.dedent(KILLED).format(root=str(ROOT), folder=str(folder), at=at)
    run = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT)
    assert run.returncode == -signal.SIGKILL
    cache = EngineCache(folder)
    assert (cache.open(key()) is not None) == (at == "after")
    # The dead process's lock does not hold, its folder is cleared, and the engine can be put.
    put(cache, key())
    assert cache.open(key()) is not None
    assert not list((folder / "tmp").iterdir())
    cache.prune()
    assert [row.status for row in cache.rows()] == ["ready"]
    assert sorted(p.name for p in folder.iterdir() if p.is_file()) == [f"{key().digest}.engine", f"{key().digest}.json"]


def test_leftovers_are_listed_and_pruned_but_not_those_of_a_running_build(cache: EngineCache) -> None:
    put(cache, key())
    (cache.folder / "0123456789abcdef.engine").write_bytes(b"x" * 10)
    (cache.folder / "tmp" / "fedcba9876543210.old").mkdir()
    with cache.building(key(sm="8.6")) as work:
        assert {row.status for row in cache.rows()} == {"ready", "leftover"}
        gone = cache.prune()
        assert {row.digest for row in gone} == {"0123456789abcdef", "fedcba9876543210"}
        assert work.is_dir()
    assert cache.open(key()) is not None


def test_what_others_keep_in_the_same_folder_is_not_touched(cache: EngineCache) -> None:
    put(cache, key())
    for name in ("quarantine.json", "quarantine.json.lock", "notes.engine"):
        (cache.folder / name).write_text("theirs")
    assert len(cache.rows()) == 1
    cache.prune(set())
    assert not cache.rows()
    assert (cache.folder / "quarantine.json").read_text() == "theirs"
    assert (cache.folder / "notes.engine").exists()


def test_prune_keeps_what_is_wanted_and_the_timings(cache: EngineCache) -> None:
    put(cache, key())
    put(cache, key(sm="8.6"))
    cache.timing_cache(key()).write_bytes(b"timed")
    cache.prune({key().digest})
    assert cache.open(key()) is not None
    assert cache.open(key(sm="8.6")) is None
    assert cache.timing_cache(key()).exists()


def test_under_the_cap_the_least_recently_used_goes_first(cache: EngineCache) -> None:
    for at, sm in enumerate(("8.0", "8.6", "8.7")):
        put(cache, key(sm=sm), b"x" * 3000)
        os.utime(cache.folder / f"{key(sm=sm).digest}.engine", (at, at))
    assert cache.open(key(sm="8.0")) is not None  # now the newest
    put(cache, key(sm="8.9"), b"x" * 3000)
    assert cache.open(key(sm="8.6")) is None
    for sm in ("8.0", "8.7", "8.9"):
        assert cache.open(key(sm=sm)) is not None


def test_what_is_larger_than_the_cap_is_refused_and_evicts_nothing(cache: EngineCache) -> None:
    put(cache, key())
    with pytest.raises(StoreCapError, match=r"20000 bytes.*10000"):
        put(cache, key(sm="8.6"), b"x" * 20_000)
    assert cache.open(key()) is not None


def test_a_failure_is_remembered_for_its_key_until_it_is_forgotten_or_built(cache: EngineCache) -> None:
    cache.fail(Failure(name="made", key=key(), code="models.engine_refused", reason="no such node", failed_at=1.0))
    found = cache.failure(key())
    assert found is not None
    assert found.reason == "no such node"
    assert cache.failure(key(tensorrt="10.4.0")) is None
    assert [row.status for row in cache.rows()] == ["failed"]
    put(cache, key())
    assert cache.failure(key()) is None
    cache.fail(found)
    cache.forget_failure(key())
    assert cache.failure(key()) is None


def test_a_store_that_cannot_be_written_still_serves(cache: EngineCache, monkeypatch: pytest.MonkeyPatch) -> None:
    put(cache, key())

    def refuse(*_: Any) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr("models.engines.tensorrt.cache.os.utime", refuse)
    assert cache.open(key()) is not None
