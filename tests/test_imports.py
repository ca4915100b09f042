"""Who may import whom, and that nothing heavy is loaded by importing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
OURS = ("appliance", "hw", "models", "ota")

FORBIDDEN = {
    "hw": ("appliance", "models", "ota"),
    "models": ("appliance", "ota"),
    "ota": ("appliance",),
    "appliance/audio": (
        "appliance.voice", "appliance.intent", "appliance.cli", "appliance.app", "appliance.telemetry",
        "appliance.mqtt", "appliance.web", "appliance.wyoming", "models", "hw",
    ),
    "appliance/voice": (
        "appliance.cli", "appliance.app", "appliance.telemetry", "appliance.mqtt", "appliance.web", "appliance.wyoming",
    ),
    "appliance/intent": (
        "appliance.voice", "appliance.audio", "appliance.cli", "appliance.app", "appliance.telemetry",
        "appliance.mqtt", "appliance.web", "appliance.wyoming", "models", "hw",
    ),
    "appliance/mqtt": ("appliance.web", "appliance.wyoming", "appliance.cli"),
    "appliance/web": ("appliance.mqtt", "appliance.wyoming", "appliance.cli"),
    "appliance/wyoming": ("appliance.web", "appliance.mqtt", "appliance.cli"),
}  # fmt: skip

HEAVY = (
    "onnxruntime",
    "onnx",
    "hassil",
    "jinja2",
    "soundfile",
    "soxr",
    "pymicro_wakeword",
    "pywebrtc_audio",
    "aiohttp",
    "tensorrt",
    "cuda",
)


def _imports(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


@pytest.mark.parametrize("folder", sorted(FORBIDDEN))
def test_a_package_imports_only_what_it_may(folder: str) -> None:
    for file in (REPOSITORY / folder).rglob("*.py"):
        for name in _imports(file):
            for forbidden in FORBIDDEN[folder]:
                assert not f"{name}.".startswith(f"{forbidden}."), f"{file} imports {name}"


MAKERS = ("ladder", "numpy", "onnx_cpu", "onnx_cuda", "rungs.open_task", "rungs.rungs_for", "tensorrt")
"""What makes engines."""


def test_only_one_place_puts_the_parts_together() -> None:
    users = {
        str(file.relative_to(REPOSITORY))
        for file in (REPOSITORY / "appliance").rglob("*.py")
        if any(f"{name}.".startswith(f"models.engines.{made}.") for name in _imports(file) for made in MAKERS)
    }
    # What measures and builds engines is no part of what serves.
    assert users <= {
        "appliance/engines.py",
        "appliance/bench_engines.py",
        "appliance/evaluation.py",
        "appliance/building.py",
        "appliance/cli/engines.py",
    }
    assert "appliance/engines.py" in users


def test_asking_the_command_for_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, appliance.cli as c; c.build_parser().format_help();"
        "print(' '.join(m for m in sys.modules if '.' not in m))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    loaded = set(run.stdout.split())
    assert loaded.isdisjoint(HEAVY), loaded & set(HEAVY)


def test_who_wants_the_model_store_alone_loads_no_planning() -> None:
    # `wren models fetch --quick` goes before every `make run`.
    code = "import sys; from appliance.cli.common import model_store; model_store(); print(' '.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    loaded = set(run.stdout.split())
    assert "models.store" in loaded
    assert loaded.isdisjoint({"hw.plan", "hw.probe", "onnxruntime"}), loaded


def test_no_file_names_a_package_registry() -> None:
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True, cwd=REPOSITORY).stdout
    hosts = ["py" + "pi.org", "python" + "hosted.org", "registry." + "npmjs.org", "deb." + "debian.org"]
    for name in tracked.split():
        file = REPOSITORY / name
        if file.is_file():
            text = file.read_bytes()
            assert not any(host.encode() in text for host in hosts), name
