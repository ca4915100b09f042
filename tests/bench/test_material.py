from __future__ import annotations

from pathlib import Path

import pytest

from appliance.bench.errors import MaterialError
from appliance.bench.material import home_file, load_clips, paused_clips, speech_folder

from .material import HEADER, write_manifest


def test_a_manifest_becomes_clips_in_its_order(tmp_path: Path) -> None:
    write_manifest(
        tmp_path / "commands",
        {"file": "b.flac"},
        {"file": "a.flac", "expected_intent": "", "expected_slots": "", "kind": "tts"},
    )
    b, a = load_clips(tmp_path)
    assert (b.name, b.path, b.intent) == ("b.flac", tmp_path / "commands" / "b.flac", "HassTurnOn")
    assert b.slots == {"area": "Kitchen", "domain": "light"}
    assert (b.speech_start_s, b.speech_end_s) == (0.5, 1.5)
    assert (a.intent, a.slots, a.kind) == (None, {}, "tts")


def test_match_and_limit_choose(tmp_path: Path) -> None:
    write_manifest(tmp_path / "commands", *({"file": f"{name}.flac"} for name in ("stp_a", "rht_b", "stp_c", "stp_d")))
    assert [clip.name for clip in load_clips(tmp_path, match="^stp_", limit=2)] == ["stp_a.flac", "stp_c.flac"]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"speech_end_s": ""}, "line 2"),
        ({"speech_end_s": "soon"}, "soon"),
        ({"speech_end_s": "0.1"}, "speech_start_s < speech_end_s"),
        ({"speech_end_s": "nan"}, "speech_start_s < speech_end_s"),
        ({"expected_slots": "{"}, "not as agreed"),
        ({"expected_slots": "[1]"}, "an object"),
    ],
)
def test_a_malformed_row_is_named(tmp_path: Path, row: dict[str, str], says: str) -> None:
    write_manifest(tmp_path / "commands", row)
    with pytest.raises(MaterialError, match=says) as caught:
        load_clips(tmp_path)
    assert caught.value.code == "bench.material"


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    write_manifest(tmp_path / "commands", {}, header=tuple(name for name in HEADER if name != "kind"))
    with pytest.raises(MaterialError, match="kind"):
        load_clips(tmp_path)


def test_absent_or_unreadable_material_is_said(tmp_path: Path) -> None:
    with pytest.raises(MaterialError, match="absent"):
        load_clips(tmp_path)
    with pytest.raises(MaterialError, match="no such folder"):
        speech_folder(tmp_path / "none")
    with pytest.raises(MaterialError, match=r"home\.json"):
        home_file(tmp_path)
    write_manifest(tmp_path / "commands", {})
    with pytest.raises(MaterialError, match="none of its 1 clips"):
        load_clips(tmp_path, match="zzz")
    with pytest.raises(MaterialError, match="regular expression"):
        load_clips(tmp_path, match="(")
    (tmp_path / "commands" / "manifest.tsv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MaterialError, match="as a table"):
        load_clips(tmp_path)


def test_the_folder_is_the_chosen_one_else_the_variables(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert speech_folder(tmp_path, {"WREN_SPEECH": str(other)}) == tmp_path
    assert speech_folder(None, {"WREN_SPEECH": str(other)}) == other


def test_paused_clips_come_once_each_and_must_be_known(tmp_path: Path) -> None:
    write_manifest(tmp_path / "commands", {"file": "a.flac"}, {"file": "b.flac"})
    pauses = tmp_path / "pauses"
    pauses.mkdir()
    (pauses / "pauses.tsv").write_text("file\tpause_s\ncommands/b.flac\t0.4\ncommands/b.flac\t0.3\n")
    assert [clip.name for clip in paused_clips(tmp_path)] == ["b.flac"]
    (pauses / "pauses.tsv").write_text("file\tpause_s\ncommands/c.flac\t0.4\n")
    with pytest.raises(MaterialError, match=r"c\.flac"):
        paused_clips(tmp_path)


def test_the_shared_recordings_are_as_agreed(shared: Path) -> None:
    clips = load_clips(shared / "speech")
    assert len(clips) == 94
    assert sum(clip.intent is not None for clip in clips) == 90
    assert sum(clip.kind == "human" for clip in clips) == 31
    assert len(load_clips(shared / "speech", "negatives")) == 135
    assert all(clip.intent is None for clip in load_clips(shared / "speech", "negatives"))
    assert len(paused_clips(shared / "speech")) == 14
