"""The catalogue's data is sound, and unsound data is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymicro_wakeword
import pytest

from models import AsrParameters, TtsParameters, VadParameters, WakeParameters, load_catalogue
from models.catalogue import Catalogue, LibrarySource, RegistryPackage
from models.engines import StateTensor
from models.errors import CatalogueError


def test_the_packs_and_their_tasks_are_those_of_the_design() -> None:
    assert {p.id: p.task for p in load_catalogue().pack} == {
        "moonshine-base-en": "asr",
        "silero-vad": "vad",
        "piper-en-us-joe": "tts",
        "wake-okay-nabu": "wake",
        "wake-hey-jarvis": "wake",
        "wake-alexa": "wake",
        "wake-hey-mycroft": "wake",
    }


def test_every_checksum_is_a_sha256_and_every_size_is_positive() -> None:
    rows = [f for p in load_catalogue().pack for f in p.files]
    rows += [s for p in load_catalogue().pack for s in p.sources if isinstance(s, RegistryPackage)]
    assert all(re.fullmatch("[0-9a-f]{64}", row.sha256) and row.size > 0 for row in rows)
    assert len({row.sha256 for row in rows}) == len(rows)


def test_no_registry_is_named_in_the_data() -> None:
    # Addresses of models are data; where packages come from is the user's configuration.
    for pack in load_catalogue().pack:
        assert "://" not in pack.model_dump_json()


def test_the_voices_caveats_tell_what_it_was_made_from() -> None:
    pack = load_catalogue().get("piper-en-us-joe")
    assert pack.licence == "MIT"
    assert "CC0" in " ".join(pack.caveats)
    assert "lessac" in " ".join(pack.caveats)


def test_states_are_written_out() -> None:
    states = load_catalogue().get("moonshine-base-en").state_tensors("decoder")
    assert len(states) == 16
    assert StateTensor("past_v.7", "present_v.7", (1, 8, 0, 52), "float32") in states
    assert load_catalogue().get("moonshine-base-en").state_tensors("encoder") == ()


def test_the_denoisers_graphs_are_named_after_their_parts_and_keep_a_state_each() -> None:
    pack = load_catalogue().get("dtln")
    for part in ("mask", "wave"):
        assert f"{part}.onnx" in {file.name for file in pack.files}
        assert [state.shape for state in pack.state_tensors(part)] == [(1, 2, 128, 2)]


def test_parameters_come_with_their_type_or_an_error() -> None:
    catalogue = load_catalogue()
    assert catalogue.get("moonshine-base-en").parameters_as(AsrParameters).end_token == 2
    assert catalogue.get("silero-vad").parameters_as(VadParameters).window_samples == 512
    assert catalogue.get("piper-en-us-joe").parameters_as(TtsParameters).hop_samples == 256
    with pytest.raises(CatalogueError, match="silero-vad is for vad"):
        catalogue.get("silero-vad").parameters_as(TtsParameters)


def test_wake_words_are_driven_as_their_library_says() -> None:
    for pack in load_catalogue().pack:
        source = pack.sources[0]
        if not isinstance(source, LibrarySource):
            continue
        parameters = pack.parameters_as(WakeParameters)
        theirs = pymicro_wakeword.MicroWakeWord.from_builtin(pymicro_wakeword.Model(source.resource))
        assert theirs.probability_cutoff == parameters.probability_cutoff
        assert theirs.sliding_window_size == parameters.sliding_window
        assert theirs.wake_word.lower() == parameters.phrase
        assert set(theirs.trained_languages) == set(pack.languages)


def test_an_unknown_id_is_answered_with_the_known_ones() -> None:
    with pytest.raises(CatalogueError, match=r"'moonshine'.*moonshine-base-en"):
        load_catalogue().get("moonshine")


def test_a_packs_digest_changes_with_its_files_only() -> None:
    pack = load_catalogue().get("silero-vad")
    assert pack.model_copy(update={"title": "x"}).digest == pack.digest
    assert pack.model_copy(update={"files": pack.files[:1]}).digest != pack.digest


def _row() -> dict[str, Any]:
    return load_catalogue().get("silero-vad").model_dump()


def _set(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(row: dict[str, Any]) -> None:
        *steps, last = path.split(".")
        here: Any = row
        for step in steps:
            here = here[int(step)] if step.isdigit() else here[step]
        here[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("files.0.name", "../up.onnx"), "pattern"),
        (_set("files.0.name", ".hidden"), "pattern"),
        (_set("files.0.sha256", "ABC"), "pattern"),
        (_set("files.0.size", 0), "greater than 0"),
        (_set("files.1.name", "silero_vad.onnx"), "names a file twice"),
        (_set("id", "Silero VAD"), "pattern"),
        (_set("sources", []), "no source"),
        (_set("sources.0.members", {"LICENSE": "x"}), "exactly the pack's files"),
        (_set("sources.0.kind", "torrent"), "does not match any of the expected tags"),
        (_set("parameters.task", "ocr"), "does not match any of the expected tags"),
        (_set("colour", "blue"), "not permitted"),
    ],
)
def test_an_unsound_row_is_refused(change: Callable[[dict[str, Any]], None], message: str) -> None:
    row = _row()
    change(row)
    with pytest.raises(ValueError, match=message):
        Catalogue.model_validate({"pack": [row]})


def test_two_packs_of_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="same id"):
        Catalogue.model_validate({"pack": [_row(), _row()]})


@pytest.mark.parametrize("text", ["pack = [", "[[pack]]\nid = 3", "\xff"])
def test_a_catalogue_that_cannot_be_read_is_named_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "catalogue.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CatalogueError, match=re.escape(str(path))) as caught:
        load_catalogue(path)
    assert "\n" not in str(caught.value)
