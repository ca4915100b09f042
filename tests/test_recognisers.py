"""Choosing a streaming transducer: from the catalogue or a folder, over engines that the plan opens."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.engines import EngineOpener
from appliance.errors import SpeechError
from appliance.events import EngineChanged, Event
from appliance.planning import current_plan, task_needs
from appliance.recognisers import find_transducer, graphs_of, moonshine_pack, open_transducer
from appliance.voice.asr.protocol import Cancel, Hypothesis
from appliance.voice.asr.transducer.files import TransducerFiles
from appliance.voice.asr.transducer.recogniser import TransducerModel, TransducerRecogniser
from hw.plan import Override, Overrides
from hw.probe import Machine
from hw.thermal import Heat, advise
from models import Store
from models.catalogue import load_catalogue
from models.errors import PackMissingError
from tests.voice.asr.transducer.hearing import model_of
from tests.voice.asr.transducer.small_models import changing_sound, write_nemo, write_zipformer

MACHINE = Machine(arch="x86_64", chip="x86_64", cpu_cores=8, usable_cores=8)
PACK = "zipformer-en-2023-06-26"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(params=[write_zipformer, write_nemo])
def files(request: pytest.FixtureRequest, tmp_path: Path, store: Store) -> TransducerFiles:
    found = find_transducer(store, str(request.param(tmp_path / "model")))
    assert found is not None
    return found


def opener_of(store: Store, files: TransducerFiles, user: Overrides | None = None) -> EngineOpener:
    given = {"asr": graphs_of(files)}
    return EngineOpener(store, current_plan(store, MACHINE, user=user, given=given), given=given)


def heard(model: TransducerModel) -> Hypothesis:
    recogniser = TransducerRecogniser(model)
    recogniser.push_samples(changing_sound(1.5))
    return recogniser.hypothesise(recogniser.samples, None, Cancel())


def test_what_was_chosen_hears_over_the_ladders(store: Store, files: TransducerFiles) -> None:
    opener = opener_of(store, files)
    try:
        assert heard(open_transducer(opener, files)) == heard(model_of(files.folder))
        settled = opener.settled["asr"]
        assert (settled.backend, settled.precision, settled.threads) == ("ort-cpu", "fp32", 2)
        assert opener.degraded == ()
    finally:
        opener.close()


def test_the_plan_names_the_model_and_keeps_the_number_of_threads_set_by_hand(
    store: Store, files: TransducerFiles
) -> None:
    user = Overrides(tasks={"asr": Override(threads=3)})
    choice = opener_of(store, files, user).plan.tasks["asr"]
    assert (choice.model, choice.threads, choice.reason) == (
        "model",
        3,
        "the model was chosen in the settings and runs as it comes",
    )
    assert opener_of(store, files).plan.tasks["tts"].model == "piper-en-us-joe"


def test_what_was_set_and_cannot_be_had_of_the_model_is_said(store: Store, files: TransducerFiles) -> None:
    user = Overrides(tasks={"asr": Override(backend="tensorrt", precision="fp16")})
    plan = opener_of(store, files, user).plan
    assert (plan.tasks["asr"].backend, plan.tasks["asr"].precision) == ("ort-cpu", "fp32")
    why = "was set, and is not used: the model was chosen in the settings and runs as it comes"
    assert plan.warnings == (f"asr: tensorrt {why}", f"asr: fp16 {why}")


def test_heat_takes_threads_and_gives_them_back(store: Store, files: TransducerFiles) -> None:
    opener = opener_of(store, files)
    try:
        model = open_transducer(opener, files)
        before = heard(model)
        opener.heat(advise(Heat.HOT))
        assert opener.settled["asr"].threads == 1
        assert heard(model) == before
    finally:
        opener.close()


def test_a_file_that_the_runtime_refuses_is_an_error_that_says_so(store: Store, files: TransducerFiles) -> None:
    spoilt = files.graphs["joiner"]
    data = bytearray(spoilt.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 400] = bytes(400)
    spoilt.write_bytes(data[:-200])
    opener = opener_of(store, files)
    with pytest.raises(Exception, match=r"asr\.joiner: no rung can be opened"):
        open_transducer(opener, files)
    opener.close()


def test_where_the_runtime_does_not_load_numpy_hears(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = find_transducer(store, str(write_zipformer(tmp_path / "model")))
    assert files is not None
    expected = heard(model_of(files.folder))
    monkeypatch.setitem(__import__("sys").modules, "models.engines.onnx_cpu", None)  # importing it fails
    opener = opener_of(store, files)
    told: list[Event] = []
    opener.emit = told.append
    try:
        found = heard(open_transducer(opener, files))
        assert found.text == expected.text
        assert found.logp == pytest.approx(expected.logp, abs=1e-3)
        assert opener.settled["asr"].backend == "numpy"
        assert len(opener.degraded) == len(told) == 3
        assert all(isinstance(event, EngineChanged) for event in told)
    finally:
        opener.close()


@pytest.mark.parametrize("chosen", [None, "moonshine-base-en", "moonshine-tiny-en"])
def test_nothing_chosen_and_a_moonshine_chosen_are_no_transducer(store: Store, chosen: str | None) -> None:
    assert find_transducer(store, chosen) is None
    assert moonshine_pack(store, chosen) == (chosen or "moonshine-base-en")


@pytest.mark.parametrize("chosen", [PACK, "./folder", "whisper-tiny-en", "unheard-of"])
def test_what_is_no_moonshine_is_not_taken_for_one(store: Store, chosen: str) -> None:
    assert moonshine_pack(store, chosen) is None


def test_tiny_is_planned_as_base_is_but_not_on_tensorrt(store: Store) -> None:
    base, tiny = (task_needs(store, pack)[0] for pack in ("moonshine-base-en", "moonshine-tiny-en"))
    assert (tiny.task, tiny.model, tiny.job) == ("asr", "moonshine-tiny-en", base.job)
    assert set(base.backends) - set(tiny.backends) == {"tensorrt"}
    assert tiny.weights_mb["int8"] < base.weights_mb["int8"] / 2
    user = Overrides(tasks={"asr": Override(backend="tensorrt")})
    plan = current_plan(store, MACHINE, user=user, asr="moonshine-tiny-en")
    assert plan.tasks["asr"].backend == "ort-cpu"
    assert any("tensorrt was set, and is not used" in warning for warning in plan.warnings)


def test_a_pack_of_the_catalogue_is_read_where_the_user_fetched_it(tmp_path: Path) -> None:
    """Fetched with consent from a mirror that has small files under the pack's names."""
    small, mirror = write_zipformer(tmp_path / "small"), tmp_path / "mirror" / PACK
    mirror.mkdir(parents=True)
    for name in load_catalogue().get(PACK).unverified:
        source = small / (name if name == "tokens.txt" else f"{name.split('-')[0]}.onnx")
        (mirror / name).write_bytes(source.read_bytes())
    store = Store(tmp_path / "store", mirror=str(mirror.parent))
    with pytest.raises(PackMissingError, match="wren models fetch"):
        find_transducer(store, PACK)
    store.ensure(PACK, consent=True)
    files = find_transducer(store, PACK)
    assert files is not None
    assert files.precision == "fp32"
    assert heard(model_of(files.folder)).text


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        (
            "whisper-tiny-en",
            "no recogniser of the catalogue (moonshine-base-en, moonshine-tiny-en, zipformer-en-2023-06-26)",
        ),
        ("zipformer", "a folder is given as a path with a slash"),
        ("./absent", "there is no such folder"),
        ("~/absent-model", "absent-model"),
    ],
)
def test_what_is_no_recogniser_is_refused(store: Store, chosen: str, says: str) -> None:
    with pytest.raises(SpeechError) as refusal:
        find_transducer(store, chosen)
    assert says in str(refusal.value)
