"""Every TensorRT name that our code uses exists, with these arguments, in every version listed, in RTX and in the fake.

Our code uses nothing beyond the protocols: mypy sees to that.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from models.engines.tensorrt import api
from models.errors import EngineError, TensorRtMissingError
from tests.models.engines import fake_tensorrt
from tests.models.engines.nvidia import needed

pytestmark = pytest.mark.shared

CLASSES = {
    name: value
    for name, value in vars(api).items()
    if inspect.isclass(value) and getattr(value, "_is_protocol", False) and name not in ("Protocol", "TensorRt")
}
MODULE = [n for n in inspect.get_annotations(api.TensorRt) if n != "__version__"]
MEMBERS = {
    "DataType": ("FLOAT", "HALF", "INT64", "INT32", "INT8", "UINT8", "BOOL"),
    "TensorIOMode": ("INPUT",),
    "TensorLocation": ("DEVICE",),
    "MemoryPoolType": ("WORKSPACE",),
    "BuilderFlag": ("VERSION_COMPATIBLE",),
    "HardwareCompatibilityLevel": ("AMPERE_PLUS",),
    "NetworkDefinitionCreationFlag": ("STRONGLY_TYPED",),
    "ExecutionContextAllocationStrategy": ("USER_MANAGED",),
}
"""Enumerations' members that our code names; `test_all_members_we_name_are_listed` looks for more."""
CALLBACKS = {"ILogger": ("log",), "IProgressMonitor": ("phase_start", "phase_finish", "step_complete")}
SOURCES = sorted(Path(api.__file__).parent.glob("*.py"))


@pytest.fixture(params=["10.3.0", "10.13.3.9", "10.16.1.11", "11.4.0.106"])
def version(request: pytest.FixtureRequest, shared: Path) -> Any:
    return json.loads((shared / "tensorrt_api" / f"tensorrt-{request.param}.json").read_text())


def test_every_listed_version_is_asked(shared: Path) -> None:
    assert len(list((shared / "tensorrt_api").glob("tensorrt-*.json"))) == 4


def test_every_class_and_constant_of_the_module_exists(version: Any) -> None:
    known = version["classes"].keys() | version["functions"].keys() | version["constants"].keys()
    assert set(MODULE) <= known
    assert CLASSES.keys() <= known


def test_every_method_takes_what_we_give_and_every_property_can_be_set_as_we_set_it(version: Any) -> None:
    for name, protocol in CLASSES.items():
        for member, signature in _methods(protocol):
            found = _member(version, name, member)
            assert found is not None, f"{name}.{member}"
            kind, value = found
            assert kind == "methods", f"{name}.{member} is among {kind}"
            assert any(_fits(signature, text) for text in value), f"{name}.{member}{signature} fits none of {value}"
        for member, settable in _properties(protocol):
            found = _member(version, name, member)
            assert found is not None, f"{name}.{member}"
            assert found[0] == "properties", f"{name}.{member}"
            assert found[1]["writable"] or not settable, f"{name}.{member} can only be read"


def test_every_enumeration_has_the_members_we_name(version: Any) -> None:
    for name, members in MEMBERS.items():
        assert set(members) <= version["classes"][name]["enum"].keys()


def test_what_tensorrt_calls_has_the_arguments_it_gives(version: Any) -> None:
    for name, methods in CALLBACKS.items():
        for method in methods:
            found = _member(version, name, method)
            assert found is not None
            ours = getattr(getattr(fake_tensorrt, name), method)
            wanted = [p for p in inspect.signature(ours).parameters if p != "self"]
            assert any(_names(text) == wanted for text in found[1]), f"{name}.{method}{wanted}"


def test_all_members_we_name_are_listed() -> None:
    """In the sources, every `trt.X.Y` is in the table above."""
    used = {
        match.groups()
        for source in SOURCES
        for match in re.finditer(r"\b(?:trt|kinds)\.([A-Z]\w+)(?:\.([A-Z][A-Z0-9_]+))?", source.read_text())
    }
    named = {(a, b) for a, b in used if b is not None}
    assert named <= {(a, b) for a, bs in MEMBERS.items() for b in bs}
    assert {a for a, _ in used} <= {*MODULE, *MEMBERS["DataType"]}
    assert ("MemoryPoolType", "WORKSPACE") in named  # the search finds something


def test_the_protocols_hold_nothing_that_our_code_does_not_use() -> None:
    ours = "".join(source.read_text() for source in SOURCES if source.name != "api.py")
    for name, protocol in CLASSES.items():
        for member in (*(m for m, _ in _methods(protocol)), *(m for m, _ in _properties(protocol))):
            assert re.search(rf"\.{member}\b", ours), f"{name}.{member}"


def test_the_older_checker_of_the_shared_folder_finds_nothing_either(shared: Path) -> None:
    """It follows values instead of protocols, as far as it can: the two overlap."""
    import subprocess
    import sys

    run = subprocess.run(
        [
            sys.executable,
            str(shared / "tensorrt_api" / "check_trt_usage.py"),
            *map(str, SOURCES),
            *("--api", str(shared / "tensorrt_api"), "--alias", "trt"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    used = re.search(r"(\d+) tensorrt names used", run.stdout)
    assert used is not None
    assert int(used[1]) >= 3


@pytest.mark.parametrize("module", [fake_tensorrt.__name__, "tensorrt_rtx"])
def test_rtx_and_the_fake_have_the_names(module: str) -> None:
    there = needed(module)
    for name in MODULE:
        assert hasattr(there, name), name
    for name, protocol in CLASSES.items():
        for member in (*(m for m, _ in _methods(protocol)), *(m for m, _ in _properties(protocol))):
            assert _has(getattr(there, name), member), f"{name}.{member}"
    for name, members in MEMBERS.items():
        assert all(hasattr(getattr(there, name), m) for m in members), name


def test_a_machine_without_it_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(TensorRtMissingError, match="python3-libnvinfer") as caught:
        api.load_tensorrt()
    assert caught.value.code == "models.tensorrt_missing"
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", None)
    with pytest.raises(TensorRtMissingError, match="tensorrt-check"):
        api.load_tensorrt("tensorrt_rtx")


@pytest.mark.parametrize("answer", [None, False, -1])
def test_every_way_of_saying_no_becomes_an_error_with_the_reason(answer: Any) -> None:
    log = api.LogLines()
    log.add(1, "Error Code 4:\n  no such thing")
    log.add(2, "a warning")
    log.add(3, "chatter")
    with pytest.raises(EngineError, match=r"refused to do it: Error Code 4: no such thing$"):
        api.checked(answer, "do it", log)


@pytest.mark.parametrize("answer", [0, True, "plan", 7])
def test_other_answers_pass(answer: Any) -> None:
    assert api.checked(answer, "do it", api.LogLines()) == answer


def test_the_log_is_bounded_and_says_when_there_is_no_reason() -> None:
    log = api.LogLines()
    assert "no reason" in log.text()
    for n in range(10_000):
        log.add(1, f"line {n} " + "x" * 100)
    assert len(log.text()) <= 1500
    assert "line 9970 " in log.text()
    log.clear()
    assert log.text(nothing="") == ""


def _has(kind: Any, member: str) -> bool:
    """Of a class; the fake sets some attributes when it makes an object only."""
    if hasattr(kind, member) or member in getattr(kind, "__dataclass_fields__", {}):
        return True
    return kind.__module__.startswith(fake_tensorrt.__name__) and f"self.{member}" in inspect.getsource(kind)


# ---- reading the lists ----------------------------------------------------------------------------


def _methods(protocol: type) -> Iterator[tuple[str, list[str]]]:
    for name, value in vars(protocol).items():
        if inspect.isfunction(value) and not name.startswith("_"):
            yield name, [p for p in inspect.signature(value).parameters if p != "self"]


def _properties(protocol: type) -> Iterator[tuple[str, bool]]:
    yield from ((name, False) for name, value in vars(protocol).items() if isinstance(value, property))
    yield from ((name, True) for name in inspect.get_annotations(protocol))


def _member(version: Any, name: str, member: str) -> tuple[str, Any] | None:
    row = version["classes"].get(name)
    if row is None:
        return None
    for kind in ("methods", "properties", "enum"):
        if member in row.get(kind, {}):
            return kind, row[kind][member]
    bases = [base.removeprefix("trt.") for base in row.get("bases", [])]
    return next((found for base in bases if (found := _member(version, base, member))), None)


def _names(signature: str) -> list[str]:
    inner = signature[1 : signature.rindex(")")].split(") ->", maxsplit=1)[0]
    parts, depth, text = [], 0, ""
    for character in inner:
        depth += character in "[(<"
        depth -= character in "])>"
        if character == "," and depth == 0:
            parts.append(text)
            text = ""
        else:
            text += character
    return [p.split(":")[0].split("=")[0].strip() for p in (*parts, text) if p.strip()][1:]


def _fits(given: list[str], signature: str) -> bool:
    """Ours are given by position, so the count decides; what is beyond ours must have a default."""
    names = _names(signature)
    required = [n for n in names if not re.search(rf"\b{n}: [^,]*=", signature)]
    return len(required) <= len(given) <= len(names)
