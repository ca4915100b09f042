"""`wren config`: show, set and check the settings file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from appliance.cli.common import print_json, warn
from appliance.errors import UsageError

if TYPE_CHECKING:
    from appliance.settings import LoadedSettings, SettingKey
    from appliance.settings.keys import PlainValue

__all__ = ["add", "run"]

_HIDDEN: Final = "***"
_COLUMN: Final = 40


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its options."""
    parser = subparsers.add_parser("config", help="show, set or check the settings")
    actions = parser.add_subparsers(dest="action", required=True, metavar="show|set|check")
    show = actions.add_parser("show", help="all settings, one, or a group, as they hold now")
    show.add_argument("key", nargs="?", metavar="KEY", help="such as wake.words, or wake")
    show.add_argument("--json", action="store_true", help="one JSON value")
    setting = actions.add_parser("set", help="change one setting and save")
    setting.add_argument("key", metavar="KEY")
    setting.add_argument("value", metavar="VALUE", help='plain or TOML; `none` removes it: a, b or \'["a", "b"]\'')
    actions.add_parser("check", help="say what is wrong or odd in the settings file")


def run(arguments: argparse.Namespace) -> int:
    """Dispatch."""
    return {"show": _show, "set": _set, "check": _check}[arguments.action](arguments)


def _show(arguments: argparse.Namespace) -> int:
    from appliance.settings import load_settings

    loaded = load_settings()
    wanted = list(_wanted(arguments.key))
    if arguments.json:
        print_json(_tree(loaded, arguments.key, wanted))
    elif len(wanted) == 1 and wanted[0].name == arguments.key:
        print(_literal(_shown(loaded, wanted[0])))
    else:
        print(f"# {loaded.path}" + ("" if loaded.exists else " (not there yet: defaults)"))
        for key in wanted:
            left = f"{key.name} = {_literal(_shown(loaded, key))}"
            origin = "" if key.name in loaded.given else "default: "
            print(f"{left:<{_COLUMN}}  # {origin}{key.description}")
    return 0


def _set(arguments: argparse.Namespace) -> int:
    from appliance.settings import SettingRefusedError, change_settings, parse_value, settings_path

    key = _one(arguments.key)
    value = parse_value(key, arguments.value)
    path = settings_path()
    try:
        change_settings(path, {key.name: value})
    except SettingRefusedError as error:
        raise UsageError(str(error)) from None
    shown: PlainValue | None = _HIDDEN if key.secret and value is not None else value
    print(f"{key.name} = {_literal(shown)}  ({path})")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from appliance.settings import load_settings

    loaded = load_settings()
    for warning in loaded.warnings:
        warn(f"{loaded.path}: {warning}")
    if loaded.exists:
        count = len(loaded.given)
        print(f"{loaded.path}: {count} setting{'' if count == 1 else 's'}, all right")
    else:
        print(f"{loaded.path}: not there; defaults apply")
    return 0


def _one(name: str) -> SettingKey:
    from appliance.settings.keys import setting_keys, suggestion

    key = setting_keys().get(name)
    if key is not None:
        return key
    group = [known for known in setting_keys() if known.startswith(name + ".")]
    if group:
        raise UsageError(f"{name} is a group; set one of {', '.join(group)}")
    raise UsageError(f"no setting {name!r}{suggestion(name)}; `wren config show` lists them")


def _wanted(name: str | None) -> Iterator[SettingKey]:
    from appliance.settings import setting_keys

    found = False
    for key in setting_keys().values():
        if name is None or key.name == name or key.name.startswith(name + "."):
            found = True
            yield key
    if not found and name is not None:
        _one(name)


def _shown(loaded: LoadedSettings, key: SettingKey) -> PlainValue | None:
    from appliance.settings.keys import value_of

    value = value_of(loaded.settings, key)
    return _HIDDEN if key.secret and value is not None else value


def _tree(loaded: LoadedSettings, name: str | None, wanted: list[SettingKey]) -> object:
    """A single value, or nested objects without the path to the group that was asked for."""
    if len(wanted) == 1 and wanted[0].name == name:
        return _shown(loaded, wanted[0])
    tree: dict[str, object] = {}
    for key in wanted:
        *tables, last = key.name.removeprefix(f"{name}.").split(".")
        here = tree
        for table in tables:
            here = here.setdefault(table, {})  # type: ignore[assignment]
        here[last] = _shown(loaded, key)
    return tree


def _literal(value: PlainValue | None) -> str:
    """As it would stand in the file; JSON's texts, numbers and lists are TOML's."""
    return "none" if value is None else json.dumps(value, ensure_ascii=False)
