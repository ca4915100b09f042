"""Settings: reading, changing without losing anything, and never leaving half a file."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.errors import SettingsError, UsageError
from appliance.settings import (
    SettingRefusedError,
    change_settings,
    ensure_web_token,
    load_settings,
    parse_value,
    setting_keys,
    settings_path,
)
from appliance.settings.keys import PlainValue, value_of
from appliance.settings.lines import line_of

NAMES = st.text(
    st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=40
).filter(lambda text: text.strip() == text)  # fmt: skip
ALLOWED: dict[str, st.SearchStrategy[PlainValue]] = {
    "area": NAMES,
    "log_level": st.sampled_from(["debug", "info", "warning", "error"]),
    "wake.words": st.lists(st.sampled_from(["okay_nabu", "alexa", "hey_jarvis"]), min_size=1, unique=True),
    "wake.threshold": st.floats(0.001, 0.999),
    "wake.refractory_s": st.floats(0.0, 10.0),
    "voice.length_scale": st.floats(0.5, 2.0),
    "audio.microphone": NAMES,
    "audio.speaker": NAMES,
    "audio.buffer_frames": st.one_of(st.just("auto"), st.integers(64, 480)),
    "audio.volume_percent": st.integers(0, 100),
    "audio.acknowledgement_sounds": st.booleans(),
    "audio.echo_cancelling": st.booleans(),
    "audio.denoise": st.sampled_from(["off", "dtln"]),
    "audio.timer_ring_s": st.integers(0, 600),
    "audio.lead_in_ms": st.integers(0, 3000),
    "listening.style": st.sampled_from(["quick", "patient", "plain"]),
    "listening.follow_up": st.booleans(),
    "listening.barge_in": st.sampled_from(["wake", "stop", "speech"]),
    "listening.follow_up_s": st.floats(1.0, 30.0),
    "listening.understood_s": st.floats(0.2, 1.4),
    "listening.not_understood_s": st.floats(1.5, 10.0),
    "listening.no_speech_s": st.floats(1.0, 60.0),
    "engines.backend": st.sampled_from(["auto", "ort-cpu", "numpy"]),
    "engines.precision": st.sampled_from(["auto", "fp32", "int8"]),
    "engines.threads": st.one_of(st.just("auto"), st.integers(1, 16)),
    "engines.memory_mb": st.integers(300, 100_000),
    "engines.measure": st.booleans(),
    "models.mirror": NAMES,
    "models.recogniser": st.sampled_from(["zipformer-en-2023-06-26", "/srv/model"]),
    "models.max_mb": st.integers(1, 100_000),
    "web.enabled": st.booleans(),
    "web.host": st.sampled_from(["127.0.0.1", "::1", "0.0.0.0"]),
    "web.port": st.integers(0, 65535),
    "web.host_names": st.lists(st.sampled_from(["wren.example", "hall.lan"]), unique=True),
    "web.token": st.from_regex(r"\A[A-Za-z0-9_-]{16,60}\Z"),
    "mqtt.enabled": st.booleans(),
    "mqtt.host": st.sampled_from(["broker.lan", "192.168.1.2", "::1"]),
    "mqtt.port": st.integers(1, 65535),
    "mqtt.username": NAMES,
    "mqtt.password": NAMES,
    "mqtt.tls": st.booleans(),
    "mqtt.client_id": st.from_regex(r"\A[A-Za-z0-9_-]{1,64}\Z"),
    "mqtt.prefix": st.sampled_from(["wren", "home/wren"]),
    "mqtt.discovery_prefix": st.sampled_from(["homeassistant", "ha"]),
    "mqtt.discovery": st.sampled_from(["device", "components", "both", "off"]),
    "mqtt.transcripts": st.booleans(),
    "mqtt.embedded": st.booleans(),
}
FILES = {"home_file", "mqtt.ca_file", "mqtt.client_certificate", "mqtt.client_key"}
"""Settings that are paths; typed ones are made absolute."""
CHANGE = st.sampled_from(sorted(ALLOWED)).flatmap(lambda name: st.tuples(st.just(name), ALLOWED[name]))
SLOW_OK = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])

WRITTEN = """\
# Mine: do not lose this.
future = {deep = [1, 2]}   # a newer Wren knows it

[wake]   # the words
words = ['alexa']  # because of the children
unheard_of = 1979-05-27

[web]
port = 10381
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "wren.toml"


def test_every_setting_has_a_description_and_is_covered_here() -> None:
    assert all(key.description.endswith(".") for key in setting_keys().values())
    assert set(ALLOWED) | FILES == set(setting_keys())


@SLOW_OK
@given(st.lists(CHANGE, min_size=1, max_size=6))
def test_what_is_set_is_what_is_read_and_nothing_else_changes(
    file: Path, changes: list[tuple[str, PlainValue]]
) -> None:
    file.write_text(WRITTEN, encoding="utf-8")
    for name, value in changes:
        change_settings(file, {name: value})
    loaded = load_settings(file)
    last = dict(changes)
    for name, value in last.items():
        assert value_of(loaded.settings, setting_keys()[name]) == value
    assert loaded.given == set(last) | {"wake.words", "web.port"}
    text = file.read_text(encoding="utf-8")
    for kept in ("# Mine: do not lose this.", "# a newer Wren knows it", "# the words", "# because of the children"):
        assert kept in text
    data = tomllib.loads(text)
    assert data["future"] == {"deep": [1, 2]}
    assert "unheard_of" in data["wake"]


@SLOW_OK
@given(CHANGE)
def test_a_value_typed_as_it_is_shown_comes_back(change: tuple[str, PlainValue]) -> None:
    from appliance.cli.config import _literal

    name, value = change
    assert parse_value(setting_keys()[name], _literal(value)) == value


@SLOW_OK
@given(NAMES.filter(lambda text: text[0] not in "\"'" and text.lower() not in {"none", "null"}))
def test_a_plain_text_needs_no_quotes(text: str) -> None:
    assert parse_value(setting_keys()["area"], text) == text


def test_a_value_equal_to_its_default_is_written_all_the_same(file: Path) -> None:
    change_settings(file, {"audio.volume_percent": 80})
    assert tomllib.loads(file.read_text())["audio"]["volume_percent"] == 80
    assert load_settings(file).given == {"audio.volume_percent"}


def test_none_removes_a_setting(file: Path) -> None:
    change_settings(file, {"wake.threshold": 0.5, "area": "hall"})
    change_settings(file, {"wake.threshold": parse_value(setting_keys()["wake.threshold"], "none")})
    assert load_settings(file).settings.wake.threshold is None
    assert load_settings(file).settings.area == "hall"


@pytest.mark.parametrize(
    "shape",
    [
        'wake.words = ["alexa"]\n',
        'wake = {words = ["alexa"]}\n',
        '[wake]\r\nwords = ["alexa"] # why\r\n',
        'area = "x"\n\n[unknown.deep]\na = 1\n\n[wake]\nwords = ["alexa"]\n[[list]]\nb = 2\n',
        '["wake"]\n"words" = ["alexa"]\n',
    ],
)
def test_files_of_any_shape_can_be_changed(file: Path, shape: str) -> None:
    file.write_bytes(shape.encode())
    before = tomllib.loads(shape)
    change_settings(file, {"wake.refractory_s": 2.0, "web.port": 5000, "area": "hall"})
    after = tomllib.loads(file.read_bytes().decode())
    assert after["wake"] == {"words": ["alexa"], "refractory_s": 2.0}
    assert (after["web"], after["area"]) == ({"port": 5000}, "hall")
    assert {name: after[name] for name in before if name not in {"wake", "area"}} == {
        name: value for name, value in before.items() if name not in {"wake", "area"}
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[wake]\nthreshold = 3\n", "line 2: wake.threshold = 3: should be less than 1; run: wren config set"),
        ("wake.threshold = 3\n", "line 1: wake.threshold = 3"),
        ("\n\n[audio]\n# here\nbuffer_frames = 3\n", "line 5: audio.buffer_frames = 3: should be"),
        ('[audio]\nvolume_percent = "80"\n', "line 2: audio.volume_percent = '80': should be a valid integer"),
        ("[audio]\nvolume_percent = true\n", "line 2: audio.volume_percent = True"),
        ('[wake]\nwords = ["nobody"]\n', "line 2: wake.words = ['nobody']: there is no wake word 'nobody'"),
        ("wake = 3\n", "line 1: wake: "),
        ("[listening]\nunderstood_s = 3\n", "line 1: listening: not_understood_s (1.5) must not be less"),
        ("[web]\ntoken = 'hunter2'\n", "line 2: web.token = ***: a token is 16 or more"),
        ("[web]\nport = 70000\n", "line 2: web.port = 70000"),
        ("[mqtt]\nprefix = 'wren/#'\n", "line 2: mqtt.prefix = 'wren/#': a prefix is words of letters"),
        ("[mqtt]\npassword = 2\n", "line 2: mqtt.password = ***: should be a valid string"),
        ("[wake\n", "not TOML: "),
        ("a = 1\na = 2\n", "not TOML: "),
        ("web.port = 1\n[web]\ntoken = 2\n", "not TOML: "),
    ],
)
def test_a_broken_file_is_told_in_one_line_with_the_place(file: Path, text: str, told: str) -> None:
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(file)
    message = str(caught.value)
    assert told in message
    assert str(file) in message
    assert "\n" not in message
    assert "hunter2" not in message


def test_a_file_that_is_not_text_or_cannot_be_read_is_told(file: Path) -> None:
    file.write_bytes(b'area = "\xff"')
    with pytest.raises(SettingsError, match="byte 8 is not UTF-8"):
        load_settings(file)
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(file.parent)


def test_a_refused_value_changes_nothing_and_a_wrong_file_can_be_mended_key_by_key(file: Path) -> None:
    wrong = "[wake]\nthreshold = 3\n[audio]\nbuffer_frames = 3\n"
    file.write_text(wrong)
    with pytest.raises(SettingRefusedError, match=r"wake\.threshold = 7"):
        change_settings(file, {"wake.threshold": 7})
    assert file.read_text() == wrong
    change_settings(file, {"wake.threshold": 0.7})
    with pytest.raises(SettingsError, match=r"audio\.buffer_frames"):
        load_settings(file)
    change_settings(file, {"audio.buffer_frames": 64})
    assert load_settings(file).settings.audio.buffer_frames == 64


def test_odd_things_are_warned_of(file: Path) -> None:
    change_settings(file, {"web.token": "a" * 20, "web.host": "0.0.0.0"})
    file.write_text(file.read_text() + "\n[wake]\nthresold = 1\n")
    file.chmod(0o644)
    warnings = " | ".join(load_settings(file).warnings)
    assert "unknown setting wake.thresold (kept, without effect); did you mean wake.threshold?" in warnings
    assert "chmod 600" in warnings
    assert "open to the network" in warnings


@pytest.mark.parametrize(
    ("name", "text"), [("wake.threshold", "loud"), ("web.enabled", "perhaps"), ("wake.words", '["a'), ("area", '"x')]
)
def test_a_value_of_the_wrong_kind_is_refused(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=name.replace(".", r"\.")):
        parse_value(setting_keys()[name], text)


def test_lists_and_switches_are_read_as_people_type_them() -> None:
    words, switch = setting_keys()["wake.words"], setting_keys()["web.enabled"]
    assert parse_value(words, '["okay_nabu"]') == ["okay_nabu"]
    assert parse_value(words, "okay_nabu, alexa") == ["okay_nabu", "alexa"]
    assert [parse_value(switch, text) for text in ("on", "No", "true")] == [True, False, True]


def test_the_file_is_private_and_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.toml", tmp_path / "wren.toml"
    real.write_text('area = "hall"\n')
    link.symlink_to(real)
    change_settings(link, {"log_level": "debug"})
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert load_settings(link).settings.log_level == "debug"
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["real.toml", "wren.toml"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_does_not_take_the_file_from_its_owner(file: Path) -> None:
    file.write_text("")
    os.chown(file, 65534, 65534)
    change_settings(file, {"area": "hall"})
    assert (file.stat().st_uid, file.stat().st_gid) == (65534, 65534)


def test_where_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.settings.file.SYSTEM_PATH", tmp_path / "etc.toml")
    xdg = tmp_path / "xdg"
    assert settings_path({"WREN_CONFIG": "/a/b.toml", "XDG_CONFIG_HOME": str(xdg)}) == Path("/a/b.toml")
    assert settings_path({"XDG_CONFIG_HOME": str(xdg)}) == xdg / "wren" / "wren.toml"
    assert settings_path({"XDG_CONFIG_HOME": "relative"}) == Path.home() / ".config" / "wren" / "wren.toml"
    (tmp_path / "etc.toml").touch()
    assert settings_path({"XDG_CONFIG_HOME": str(xdg)}) == tmp_path / "etc.toml"


def test_a_relative_home_file_is_meant_from_the_settings(file: Path) -> None:
    file.write_text('home_file = "home.json"\n')
    assert load_settings(file).settings.home_file == file.parent / "home.json"
    file.write_text('mqtt.ca_file = "ca.pem"\nmqtt.client_key = "/keys/k.pem"\n')
    mqtt = load_settings(file).settings.mqtt
    assert (mqtt.ca_file, mqtt.client_key, mqtt.client_certificate) == (
        file.parent / "ca.pem",
        Path("/keys/k.pem"),
        None,
    )


def test_a_password_is_never_shown_and_one_that_travels_in_the_open_is_warned_of(file: Path) -> None:
    change_settings(file, {"mqtt.host": "broker.lan", "mqtt.username": "wren", "mqtt.password": "correct horse"})
    assert "correct horse" not in repr(load_settings(file))
    assert load_settings(file).warnings == ("mqtt.tls is off: the password travels unencrypted to broker.lan",)
    file.chmod(0o644)
    assert "can read mqtt.password; run: chmod 600" in load_settings(file).warnings[0]
    change_settings(file, {"mqtt.tls": True})
    assert load_settings(file).warnings == ()


def test_two_first_starts_at_once_agree_on_one_token(file: Path) -> None:
    tokens: list[str] = []

    def start() -> None:
        token = ensure_web_token(load_settings(file)).settings.web.token
        assert token is not None
        tokens.append(token.get_secret_value())

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == 8
    assert len(set(tokens)) == 1
    assert len(tokens[0]) >= 43
    assert tokens[0] not in repr(load_settings(file))


def test_changes_from_two_programs_at_once_are_both_kept(file: Path) -> None:
    def change(name: str, values: range) -> None:
        for value in values:
            change_settings(file, {name: value})

    threads = [
        threading.Thread(target=change, args=("audio.volume_percent", range(20))),
        threading.Thread(target=change, args=("web.port", range(5000, 5020))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loaded = load_settings(file).settings
    assert (loaded.audio.volume_percent, loaded.web.port) == (19, 5019)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("a",), 1),
        (("t", "b"), 4),
        (("t", "c", "d"), 5),
        (("t", "missing"), 3),
        (("q r", "e"), 10),
        (("nowhere",), None),
    ],
)
def test_the_line_of_a_key(path: tuple[str, ...], line: int | None) -> None:
    text = "a = 1\n# b = 0\n[t]\nb = 2\nc.d = 3\nlong = '''\n[not.a.table]\nb = 9\n'''\n[\"q r\"]\ne=1\n"
    expected = 11 if path[-1] == "e" else line
    assert line_of(text, path) == expected


KILLER = """
import os, random, signal, sys, time, tomllib
from pathlib import Path
from appliance.settings import change_settings, load_settings
import tomlkit
path, seconds = Path(sys.argv[1]), float(sys.argv[2])
random.seed(1)
kills = beside = 0
values = set()
end = time.monotonic() + seconds
while time.monotonic() < end:
    child = os.fork()
    if child == 0:
        for number in range(1000):
            change_settings(path, {"audio.volume_percent": number % 101, "area": "x" * (number % 101)or "y"})
    time.sleep(random.uniform(0.0, 0.08))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    kills += 1
    loaded = load_settings(path)
    volume = loaded.settings.audio.volume_percent
    values.add(volume)
    assert loaded.settings.area == ("x" * volume or "y"), "half of a change"
    assert path.read_text().endswith("# the end\\n"), "half of the file"
    beside += len(list(path.parent.iterdir())) - 1
change_settings(path, {"area": "after"})
assert [entry.name for entry in path.parent.iterdir()] == [path.name], "something was left lying about"
print(kills, beside, len(values))
"""


def test_a_kill_at_any_moment_leaves_the_old_file_or_the_new_one(file: Path) -> None:
    padding = "".join(f"# {random.Random(line).random()}\n" for line in range(100))
    file.write_text('area = "y"\n[audio]\nvolume_percent = 0\n' + padding + "# the end\n")
    run = subprocess.run(
        [sys.executable, "-c", KILLER, str(file), "8"], capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0, run.stderr
    kills, beside, values = map(int, run.stdout.split())
    assert kills >= 30
    assert beside >= 3, "no writer was killed while it wrote: the test has not tested what it is for"
    assert values >= 2
