"""Where packs come from: sources in order, a mirror first, and trust on first use where no checksum was known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from models import Catalogue, Progress, Store, load_catalogue
from models.catalogue import LaterParameters, TransducerParameters
from models.download import Downloader, Expected, Report
from models.errors import CatalogueError, ConsentNeededError, FetchError, PackCorruptError, PackMissingError
from models.sources import RegistryPackage
from tests.models.conftest import CONTENT, Made, sha256

PACK: dict[str, Any] = {
    "id": "far-voice",
    "title": "A voice elsewhere",
    "languages": ["en"],
    "licence": "MIT",
    "parameters": {"task": "not-used-yet", "will_be": "tts", "family": "made", "rate_hz": 16000},
}
URLS = {"kind": "url", "max_bytes": 10_000_000, "urls": {n: f"https://models.example/{n}" for n in CONTENT}}


class FakeDownloader(Downloader):
    """Stands in for a server on the internet."""

    def __init__(self, content: dict[str, bytes] | None = None) -> None:
        super().__init__()
        self.content = dict(CONTENT) if content is None else content
        self.asked: list[str] = []

    def fetch(self, url: str, target: Path, expected: Expected, report: Report) -> None:
        self.asked.append(url)
        name = url.rsplit("/", 1)[-1]
        if name not in self.content:
            raise FetchError(f"{url}: the server says 404")
        data = self.content[name]
        if expected.sha256 not in (None, sha256(data)):
            raise FetchError(f"{url}: does not have sha256 {expected.sha256}: not used")
        target.write_bytes(data)
        report(len(data), len(data))


class BrokenFetcher:
    """Stands in for a registry that cannot be reached."""

    def fetch(self, source: RegistryPackage, folder: Path, progress: Progress) -> Path:
        raise FetchError(f"{source.distribution} cannot be downloaded")


def _unverified(root: Path, downloader: Downloader) -> Store:
    pack = {**PACK, "unverified": list(CONTENT), "sources": [URLS]}
    catalogue = Catalogue.model_validate({"pack": [], "extra": [pack]})
    return Store(root, catalogue=catalogue, downloader=downloader)


def _verified(root: Path, sources: list[dict[str, Any]], **more: Any) -> Store:
    rows = [{"name": n, "size": len(d), "sha256": sha256(d)} for n, d in CONTENT.items()]
    catalogue = Catalogue.model_validate({"pack": [{**PACK, "files": rows, "sources": sources}]})
    return Store(root, catalogue=catalogue, **more)


def test_a_pack_comes_from_its_own_address(tmp_path: Path) -> None:
    downloader = FakeDownloader()
    pack = _verified(tmp_path, [URLS], downloader=downloader).ensure("far-voice")
    assert {p.name: p.read_bytes() for p in pack.folder.iterdir()} == CONTENT
    assert downloader.asked == list(URLS["urls"].values())  # type: ignore[attr-defined]
    assert not (tmp_path / "partial" / "far-voice").exists()


def test_the_next_source_is_asked_where_one_fails(made: Made, tmp_path: Path) -> None:
    wheel = made.catalogue.get("made-voice").sources[0].model_dump()
    downloader = FakeDownloader()
    store = _verified(tmp_path / "s", [wheel, URLS], fetcher=BrokenFetcher(), downloader=downloader)
    assert store.ensure("far-voice").folder.is_dir()
    assert downloader.asked


def test_every_source_that_failed_is_told(made: Made, tmp_path: Path) -> None:
    wheel = made.catalogue.get("made-voice").sources[0].model_dump()
    folder = {"kind": "folder", "path": str(tmp_path / "nothing")}
    store = _verified(tmp_path / "s", [wheel, URLS, folder], fetcher=BrokenFetcher(), downloader=FakeDownloader({}))
    with pytest.raises(FetchError, match=r"cannot be downloaded; then https://.*404; then .*nothing has no file"):
        store.ensure("far-voice")
    assert not (tmp_path / "s" / "packs").exists()


def test_a_folder_is_a_source(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    for name, data in CONTENT.items():
        (tmp_path / "disk" / name).write_bytes(data)
    store = _verified(tmp_path / "s", [{"kind": "folder", "path": str(tmp_path / "disk")}])
    assert store.ensure("far-voice").path("LICENSE").read_bytes() == CONTENT["LICENSE"]


def test_a_mirror_is_asked_first_and_believed_in_nothing(tmp_path: Path) -> None:
    mirror = tmp_path / "mirror" / "far-voice"
    mirror.mkdir(parents=True)
    for name, data in CONTENT.items():
        (mirror / name).write_bytes(data)
    downloader = FakeDownloader()
    _verified(tmp_path / "a", [URLS], downloader=downloader, mirror=str(tmp_path / "mirror")).ensure("far-voice")
    assert not downloader.asked
    (mirror / "LICENSE").write_bytes(b"Something else.")
    pack = _verified(tmp_path / "b", [URLS], downloader=downloader, mirror=str(tmp_path / "mirror")).ensure("far-voice")
    assert pack.path("LICENSE").read_bytes() == CONTENT["LICENSE"]
    assert downloader.asked


def test_a_mirror_may_be_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WREN_MODELS_MIRROR", "https://mirror.example/wren/")
    downloader = FakeDownloader()
    _verified(tmp_path, [URLS], downloader=downloader).ensure("far-voice")
    assert downloader.asked == [f"https://mirror.example/wren/far-voice/{n}" for n in CONTENT]


# ---- trust on first use -------------------------------------------------------------------------------


def test_an_unverified_pack_needs_consent(tmp_path: Path) -> None:
    downloader = FakeDownloader()
    store = _unverified(tmp_path, downloader)
    assert store.list()[0].status == "unverified"
    with pytest.raises(ConsentNeededError, match="--consent far-voice"):
        store.ensure("far-voice")
    with pytest.raises(PackMissingError):
        store.open("far-voice")
    assert not downloader.asked


def test_what_was_seen_is_pinned_and_only_that_is_taken_after(tmp_path: Path) -> None:
    store = _unverified(tmp_path, FakeDownloader())
    store.ensure("far-voice", consent=True)
    assert store.list()[0].status == "installed"
    # Pinned: from now on no consent is needed, and another file is refused, in another program too.
    store.remove("far-voice")
    _unverified(tmp_path, FakeDownloader()).ensure("far-voice")
    store.remove("far-voice")
    changed = _unverified(tmp_path, FakeDownloader({**CONTENT, "LICENSE": b"Other."}))
    with pytest.raises(FetchError, match="does not have sha256"):
        changed.ensure("far-voice", consent=True)
    changed.remove("far-voice", forget=True)
    assert changed.ensure("far-voice", consent=True).path("LICENSE").read_bytes() == b"Other."


def test_a_pinned_pack_that_was_tampered_with_is_corrupt(tmp_path: Path) -> None:
    store = _unverified(tmp_path, FakeDownloader())
    store.ensure("far-voice", consent=True).path("LICENSE").write_bytes(b"Do as you wish..\n\n")
    with pytest.raises(PackCorruptError):
        store.open("far-voice")


def test_a_pin_that_cannot_be_read_is_not_renewed_silently(tmp_path: Path) -> None:
    store = _unverified(tmp_path, FakeDownloader())
    store.ensure("far-voice", consent=True)
    (tmp_path / "pins" / "far-voice.json").write_text("{")
    assert store.list()[0].status == "corrupt"
    with pytest.raises(PackCorruptError, match="--forget"):
        store.ensure("far-voice", consent=True)


# ---- the catalogue ------------------------------------------------------------------------------------


def test_what_could_not_be_verified_says_so_and_is_not_used_yet() -> None:
    catalogue = load_catalogue()
    unverified = [p for p in catalogue.extra if p.unverified]
    assert {p.id for p in unverified} >= {"whisper-tiny-en", "kokoro-82m"}
    for pack in unverified:
        assert not pack.files
        assert isinstance(pack.parameters, LaterParameters | TransducerParameters)
        assert pack.used is isinstance(pack.parameters, TransducerParameters)
    assert all(p.used and not p.unverified for p in catalogue.pack)


@pytest.mark.parametrize(
    "change",
    [
        {"sources": [{**URLS, "urls": {"net.onnx": "http://models.example/net.onnx"}}]},
        {"sources": [{**URLS, "urls": {"net.onnx": "https://models.example/net.onnx"}}]},
        {"sources": [{"kind": "folder", "path": "here"}]},
        {"unverified": ["../net.onnx", "LICENSE"]},
        {"files": [{"name": "other", "size": 1, "sha256": "0" * 64}]},
    ],
)
def test_a_bad_entry_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    import json

    row = {**PACK, "unverified": list(CONTENT), "sources": [URLS], **change}
    with pytest.raises(ValueError, match="validation error"):
        Catalogue.model_validate(json.loads(json.dumps({"pack": [row]})))
    (tmp_path / "c.toml").write_text("pack = 1")
    with pytest.raises(CatalogueError):
        load_catalogue(tmp_path / "c.toml")
