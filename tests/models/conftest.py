"""A small made pack in a wheel, and a fake registry to fetch it from. For tests marked `models`: the real store, and
stores that have its graphs in every precision."""

from __future__ import annotations

import functools
import hashlib
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from models import Catalogue, Progress, Store
from models.catalogue import RegistryPackage
from tests.models.engines.variants import store_with_variants

StoreOf = Callable[[str], Store]

CONTENT = {"net.onnx": bytes(range(256)) * 2000, "LICENSE": b"Do as you please.\n"}
"""Files of the made pack."""
MEMBERS = {"net.onnx": "made_voice/data/net.onnx", "LICENSE": "made_voice-1.0.dist-info/LICENSE"}
"""Where its wheel keeps them."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_wheel(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)


def make_catalogue(wheel: Path, content: dict[str, bytes]) -> Catalogue:
    """A catalogue with the pack `made-voice`, whose wheel is `wheel`, and a library pack."""
    data = wheel.read_bytes()
    return Catalogue.model_validate(
        {
            "pack": [
                {
                    "id": "made-voice",
                    "title": "A made voice",
                    "languages": ["en"],
                    "licence": "MIT",
                    "files": [{"name": n, "size": len(d), "sha256": sha256(d)} for n, d in content.items()],
                    "sources": [
                        {
                            "kind": "registry-package",
                            "distribution": "made-voice",
                            "version": "1.0",
                            "wheel": wheel.name,
                            "size": len(data),
                            "sha256": sha256(data),
                            "members": {name: MEMBERS[name] for name in content},
                        }
                    ],
                    "parameters": _VAD,
                },
                {
                    "id": "made-library",
                    "title": "A model in a library",
                    "languages": ["en"],
                    "licence": "MIT",
                    "sources": [{"kind": "library", "distribution": "made-library", "resource": "net"}],
                    "parameters": _VAD,
                },
            ]
        }
    )


_VAD = {
    "task": "vad",
    "rate_hz": 16000,
    "window_samples": 512,
    "context_samples": 64,
    "speech_threshold": 0.5,
    "silence_threshold": 0.35,
}


@dataclass
class FakeFetcher:
    """Stands in for pip: gives out a wheel that lies on this disk, or does something worse first."""

    wheel: Path
    trouble: Callable[[Path], None] | None = None
    """Called with the place where the wheel is about to go, or None."""
    calls: int = field(default=0)

    def fetch(self, source: RegistryPackage, folder: Path, progress: Progress) -> Path:
        self.calls += 1
        target = folder / source.wheel
        if self.trouble is not None:
            self.trouble(target)
        shutil.copy(self.wheel, target)
        progress(f"download {source.distribution}", source.size, source.size)
        return target


@dataclass
class Made:
    """A store for the made pack, and what it is fed from."""

    store: Store
    fetcher: FakeFetcher
    catalogue: Catalogue

    @property
    def content(self) -> dict[str, bytes]:
        """What the pack's files hold."""
        return CONTENT

    @property
    def files(self) -> list[Path]:
        """Everything in the store that is not a lock."""
        return [p for p in self.store.root.rglob("*") if p.is_file() and p.suffix != ".lock"]

    def again(self) -> Store:
        """The same store, opened by another program."""
        return Store(self.store.root, catalogue=self.catalogue, fetcher=self.fetcher)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    wheel = tmp_path / "registry" / "made_voice-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    make_wheel(wheel, {MEMBERS[name]: data for name, data in CONTENT.items()} | {"made_voice/__init__.py": b"raise\n"})
    catalogue = make_catalogue(wheel, CONTENT)
    fetcher = FakeFetcher(wheel)
    return Made(Store(tmp_path / "store", catalogue=catalogue, fetcher=fetcher), fetcher, catalogue)


@pytest.fixture(scope="session")
def real_store() -> Iterator[Store]:
    """The user's own store with the real packs; fetched once where they are missing."""
    store = Store()
    for pack_id in ("moonshine-base-en", "silero-vad", "piper-en-us-joe"):
        store.ensure(pack_id)
    return store


@pytest.fixture(scope="session")
def store_of(real_store: Store, tmp_path_factory: pytest.TempPathFactory) -> StoreOf:
    """Pack -> a store that has it in every precision; what is missing is made once a session, half a minute for all."""

    @functools.cache
    def store_of(pack_id: str) -> Store:
        return store_with_variants(real_store, pack_id, tmp_path_factory.mktemp(f"{pack_id}-variants"))

    return store_of
