"""The settings file: where it is, reading it, and changing one key without losing anything else in it.

A change is made on the file as it is now, under a lock, and put in place by renaming: whoever reads, and whoever
pulls the plug, meets the old file or the new one. Comments, order and unknown keys stay.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import time
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from appliance.errors import SettingsError
from appliance.settings.keys import PlainValue, setting_keys, suggestion, value_of
from appliance.settings.lines import line_of
from appliance.settings.model import Settings

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails
    from tomlkit import TOMLDocument

__all__ = [
    "LoadedSettings",
    "SettingRefusedError",
    "change_settings",
    "ensure_web_token",
    "load_settings",
    "settings_path",
]

SYSTEM_PATH: Final = Path("/etc/wren/wren.toml")
LOCK_TIMEOUT_S: Final = 5.0
"""A change takes milliseconds; a lock held longer than this is held by something that hangs."""
TOKEN_BYTES: Final = 32
PRIVATE_MODE: Final = 0o600
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class SettingRefusedError(SettingsError):
    """A setting was to be given a value that is not allowed; nothing was changed."""

    code = "appliance.settings.value"


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings and where they come from."""

    settings: Settings
    path: Path
    exists: bool
    """False where there is no file and defaults apply."""
    given: frozenset[str] = frozenset()
    """Names of the settings that the file holds."""
    warnings: tuple[str, ...] = ()
    """What is odd but does no harm: unknown keys, a token that others can read."""


def settings_path(environment: Mapping[str, str] | None = None) -> Path:
    """`$WREN_CONFIG`, else /etc/wren/wren.toml where it exists, else wren.toml in the user's configuration folder.

    Raises `SettingsError` where the user has no home.
    """
    environment = os.environ if environment is None else environment
    if chosen := environment.get("WREN_CONFIG"):
        return Path(chosen).expanduser().absolute()
    if SYSTEM_PATH.exists():
        return SYSTEM_PATH
    folder = Path(environment.get("XDG_CONFIG_HOME") or "~/.config")
    try:
        # The specification says to ignore a relative XDG_CONFIG_HOME.
        base = folder.expanduser() if str(folder).startswith(("/", "~")) else Path("~/.config").expanduser()
    except RuntimeError:
        raise SettingsError("this user has no home folder; say where the settings are with WREN_CONFIG") from None
    return base / "wren" / "wren.toml"


def load_settings(path: Path | None = None) -> LoadedSettings:
    """Read and check; a file that is not there gives the defaults.

    Raises `SettingsError` with the line, the key, its value and what to do.
    """
    path = path or settings_path()
    text = _read(path)
    if text is None:
        return LoadedSettings(Settings(), path, exists=False)
    data = _parse(path, text)
    settings = _validate(path, text, data)
    settings = _with_paths_from(path.parent, settings)
    given, unknown = _sorted_out(data)
    warnings = [
        f"line {line_of(text, name.split('.')) or '?'}: unknown setting {name} (kept, without effect){suggestion(name)}"
        for name in unknown
    ]
    return LoadedSettings(settings, path, True, frozenset(given), (*warnings, *_cautions(path, settings)))


def change_settings(path: Path, changes: Mapping[str, PlainValue | None], *, keep_existing: bool = False) -> Settings:
    """Set (or, with None, remove) keys by their dotted names and save; gives the settings that now hold.

    With `keep_existing`, keys that the file holds by now are left as they are.

    A file with another wrong value can still be changed, so that it can be mended key by key; the settings
    then given are those with the wrong values left out. A file that says so already is
    not written again. Raises `SettingRefusedError`, `SettingsError`; nothing has been written then.
    """
    target = path.resolve()  # a link stays a link
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.parent):
            text = _read(target) or _NEW_FILE
            data = _parse(target, text)
            if keep_existing:
                changes = {key: value for key, value in changes.items() if _lookup(data, key) is None}
            changed = _edited(target, text, changes)
            checked = _parse(target, changed)
            _check_edit(target, data, checked, changes)
            settings = _validate(target, changed, checked, only=changes.keys())
            if changed != text:
                _replace(target, changed)
    except OSError as error:
        raise SettingsError(f"{path}: cannot be written ({error.strerror}); check its folder and the disk") from None
    return settings


def ensure_web_token(loaded: LoadedSettings) -> LoadedSettings:
    """The settings with a token for the page: a new one is made and saved where there is none.

    Raises `SettingsError` where it cannot be saved; a token that changes at every start would close every page.
    """
    if loaded.settings.web.token is not None:
        return loaded
    token = {"web.token": secrets.token_urlsafe(TOKEN_BYTES)}
    change_settings(loaded.path, token, keep_existing=True)  # two first starts at once must agree on one
    return load_settings(loaded.path)


_NEW_FILE: Final = "# Wren's settings. `wren config show` lists what there is, `wren config check` checks this file.\n"


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")  # bytes: line endings stay as they are
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror}); check whose file it is") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: byte {error.start} is not UTF-8 text; save the file as UTF-8") from None


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not TOML: {error}; mend that line") from None


def _validate(path: Path, text: str, data: dict[str, Any], only: Collection[str] | None = None) -> Settings:
    """Check all; or, where keys have just been changed, tell only what is wrong with them and leave the rest out."""
    faults: dict[str, list[str]] = {}
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            faults.setdefault(_name(fault["loc"]), []).append(_told(fault))
    for name, told in faults.items():
        what = f"{name}{_given_value(data, name)}: {' or '.join(dict.fromkeys(told))}"
        if only is None:
            line = line_of(text, name.split("."))
            cure = f"run: wren config set {name} VALUE" if name in setting_keys() else "mend it in the file"
            raise SettingsError(f"{path}, line {line or '?'}: {what}; {cure}") from None
        if any(name in {key, key.rpartition(".")[0]} for key in only):
            raise SettingRefusedError(f"{what}; nothing was changed")
    for name in faults:
        _drop(data, name)
    return _validate(path, text, data)


def _with_paths_from(folder: Path, settings: Settings) -> Settings:
    """A relative path in the file is meant from the file."""

    def absolute(path: Path | None) -> Path | None:
        return None if path is None else (folder / path.expanduser()).absolute()

    mqtt = settings.mqtt
    files = {name: absolute(getattr(mqtt, name)) for name in ("ca_file", "client_certificate", "client_key")}
    chosen = settings.models.recogniser
    folder_chosen = chosen is not None and ("/" in chosen or chosen.startswith("~"))
    models = {"recogniser": str(absolute(Path(chosen)))} if chosen is not None and folder_chosen else {}
    changed = {
        "home_file": absolute(settings.home_file),
        "mqtt": mqtt.model_copy(update=files),
        "models": settings.models.model_copy(update=models),
    }
    return settings.model_copy(update=changed)


def _told(fault: ErrorDetails) -> str:
    """What a person is told; our own rules speak for themselves."""
    own = fault.get("ctx", {}).get("error")
    return str(own) if own is not None else fault["msg"].removeprefix("Input ").replace("a valid tuple", "a list")


def _given_value(data: dict[str, Any], name: str) -> str:
    key, value = setting_keys().get(name), _lookup(data, name)
    if key is None or value is None:
        return ""  # a group's own value would repeat the whole group
    return " = ***" if key.secret else f" = {value!r}"


def _name(location: tuple[int | str, ...]) -> str:
    """The setting, or the group, that a validation error is about."""
    dotted = ""
    for step in location:
        longer = f"{dotted}.{step}" if dotted else str(step)
        if not any(name == longer or name.startswith(longer + ".") for name in setting_keys()):
            break
        dotted = longer
    return dotted


def _lookup(data: Any, name: str) -> Any:
    for step in name.split("."):
        data = data.get(step) if isinstance(data, dict) else None
    return data


def _drop(data: dict[str, Any], name: str) -> None:
    *tables, last = name.split(".")
    for table in tables:
        data = data[table]
    data.pop(last, None)


def _sorted_out(data: Mapping[str, Any], prefix: str = "") -> tuple[list[str], list[str]]:
    """Names that are settings, and those that are not."""
    given: list[str] = []
    unknown: list[str] = []
    for step, item in data.items():
        name = f"{prefix}{step}"
        if name in setting_keys():
            given.append(name)
        elif isinstance(item, dict) and any(known.startswith(name + ".") for known in setting_keys()):
            inner_given, inner_unknown = _sorted_out(item, name + ".")
            given += inner_given
            unknown += inner_unknown
        else:
            unknown.append(name)
    return given, unknown


def _cautions(path: Path, settings: Settings) -> Iterator[str]:
    secrets_held = [name for name, key in setting_keys().items() if key.secret and value_of(settings, key) is not None]
    if secrets_held and stat.S_IMODE(path.stat().st_mode) & 0o077:
        yield f"others on this machine can read {' and '.join(secrets_held)}; run: chmod 600 {path}"
    if settings.mqtt.password is not None and settings.mqtt.host not in {None, *_LOOPBACK} and not settings.mqtt.tls:
        yield f"mqtt.tls is off: the password travels unencrypted to {settings.mqtt.host}"
    if settings.web.enabled and settings.web.host not in _LOOPBACK:
        yield f"web.host = {settings.web.host}: the page is open to the network, and its token travels unencrypted"


def _edited(path: Path, text: str, changes: Mapping[str, PlainValue | None]) -> str:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        for name, value in changes.items():
            _put(document, name.split("."), value)
        return tomlkit.dumps(document)
    except (TOMLKitError, TypeError, AttributeError) as error:
        # A group that is no table (`wake = 3`), or one written in a way that cannot be added to.
        raise SettingsError(f"{path}: {error}: cannot be changed as it stands; mend it in the file") from None


def _put(document: TOMLDocument, path: list[str], value: PlainValue | None) -> None:
    import tomlkit

    *tables, last = path
    table: Any = document
    for name in tables:
        if name not in table:
            if value is None:
                return
            table[name] = tomlkit.table()
        table = table[name]
    if value is None:
        table.pop(last, None)
    else:
        table[last] = value


def _check_edit(
    path: Path, before: dict[str, Any], after: dict[str, Any], changes: Mapping[str, PlainValue | None]
) -> None:
    """The rewritten text must say exactly what was asked, whatever shape the file had: else nothing is written."""
    for name, value in changes.items():
        if _lookup(after, name) != value:
            raise SettingsError(f"{path}: {name} could not be changed as the file stands; change it in the file")
    kept_before, kept_after = _flat(before), _flat(after)
    for name in changes:
        kept_before.pop(name, None)
        kept_after.pop(name, None)
    if repr(sorted(kept_before.items())) != repr(sorted(kept_after.items())):  # as text: nan differs from itself
        raise SettingsError(f"{path}: the change would have touched other settings; change it in the file")


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer at a time; the folder itself is locked, so that no lock file is left lying about."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline_s = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise SettingsError(f"{folder}: another program keeps the settings locked; try again") from None
                time.sleep(0.01)
        yield
    finally:
        os.close(handle)


def _replace(path: Path, text: str) -> None:
    """Write beside, force to the disk, rename over, force the name to the disk."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)  # left by a writer that was killed; the lock says that nobody is writing now
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_MODE)
        with os.fdopen(handle, "wb") as file:
            _keep_owner(path, file.fileno())
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _keep_owner(path: Path, handle: int) -> None:
    """Root may change the file of the account that Wren runs under, which must still be able to read it."""
    if os.geteuid() == 0:
        owner = (path if path.exists() else path.parent).stat()
        os.fchown(handle, owner.st_uid, owner.st_gid)
