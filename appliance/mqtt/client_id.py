"""This appliance's name at the broker and in topics: made once, kept, and never shared."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from platformdirs import user_state_path

from appliance.errors import ApplianceError
from models.paths import DEVICE_STATE

__all__ = ["ID", "MqttFolderError", "keep_secret", "kept_id", "state_folder"]

ID: Final = re.compile(r"wren-[0-9a-f]{8}")


class MqttFolderError(ApplianceError):
    """What MQTT has to keep cannot be kept."""

    code = "mqtt.folder"


def state_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where it is kept: `$WREN_STATE_DIR`, else the device's state folder, else the user's; with `mqtt` appended.

    Not the cache: who empties that must not become a new device at Home Assistant.
    """
    environ = os.environ if environ is None else environ
    if chosen := environ.get("WREN_STATE_DIR"):
        return Path(chosen).expanduser().absolute() / "mqtt"
    if DEVICE_STATE.is_dir() and os.access(DEVICE_STATE, os.W_OK):
        return DEVICE_STATE / "mqtt"
    return user_state_path("wren") / "mqtt"


def kept_id(folder: Path) -> str:
    """`wren-` and eight hexadecimal digits, made at the first call. Fits client ids, topics and discovery ids.

    Raises `MqttFolderError`.
    """
    return keep_secret(folder / "id", lambda: f"wren-{secrets.token_hex(4)}", ID)


def keep_secret(path: Path, make: Callable[[], str], shape: re.Pattern[str]) -> str:
    """What the file holds, or, where it holds nothing of that shape, what is made now and kept (mode 0600).

    Two that start at once agree on one. Raises `MqttFolderError`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        while (held := _held(path, shape)) is None:
            beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
            try:
                with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                    file.write(f"{make()}\n")
                    file.flush()
                    os.fsync(file.fileno())
                with contextlib.suppress(FileExistsError):  # another start was quicker: its word holds
                    os.link(beside, path)
            finally:
                beside.unlink(missing_ok=True)
    except OSError as error:
        raise MqttFolderError(f"{path} cannot be kept ({error.strerror}); check its folder and the disk") from None
    return held


def _held(path: Path, shape: re.Pattern[str]) -> str | None:
    try:
        text = path.read_bytes().decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    if shape.fullmatch(text):
        return text
    path.unlink(missing_ok=True)  # meddled with: of no use as it is
    return None
