"""A streaming transducer as the recogniser of the whole appliance: chosen by the settings, heard through a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.app import Wren
from appliance.errors import SettingsError
from appliance.recording import file_frames, hear
from appliance.running import wren_settings
from appliance.settings import change_settings, load_settings
from appliance.voice.asr.transducer.recogniser import TransducerRecogniser
from tests.voice.asr.transducer.small_models import write_zipformer


@pytest.mark.models
@pytest.mark.shared
def test_the_recogniser_that_the_settings_choose_hears(shared: Path, tmp_path: Path) -> None:
    write_zipformer(tmp_path / "model")
    settings_file = tmp_path / "wren.toml"
    settings_file.write_text('[models]\nrecogniser = "./model"\n')
    chosen = wren_settings(load_settings(settings_file).settings)
    assert chosen.recogniser == str(tmp_path / "model")
    with Wren.open(chosen) as wren:
        assert isinstance(wren.recogniser(), TransducerRecogniser)
        assert wren.plan.tasks["asr"].model == "model"
        wren.wait_for_bias()
        clip = shared / "speech" / "commands" / "rht_turn_off_garage_light.flac"
        heard = hear(wren, clip.name, file_frames(clip), wake=False)
        assert heard.error is None
        assert heard.utterances[0].text  # gibberish: its weights are random
        assert heard.reply
        settled = wren.opener.settled["asr"]
        assert (settled.backend, settled.precision) == ("ort-cpu", "fp32")


def test_a_relative_folder_is_meant_from_the_settings_file_and_a_name_stays_one(tmp_path: Path) -> None:
    settings_file = tmp_path / "wren.toml"
    for said, meant in (
        ("./model", str(tmp_path / "model")),
        ("/srv/model", "/srv/model"),
        ("zipformer-en-2023-06-26", "zipformer-en-2023-06-26"),
    ):
        change_settings(settings_file, {"models.recogniser": said})
        assert load_settings(settings_file).settings.models.recogniser == meant
    with pytest.raises(SettingsError):
        change_settings(settings_file, {"models.recogniser": ""})
