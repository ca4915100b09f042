"""Settings by name: `wake.words`, what kind of value each takes, and values as a person types them."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from appliance.errors import UsageError
from appliance.settings.model import Settings

__all__ = ["PlainValue", "SettingKey", "parse_value", "plain_value", "setting_keys", "suggestion", "value_of"]

PlainValue = str | int | float | bool | list[str]
"""What a TOML file holds for a setting; a setting of none is one that is not there."""

_ABSENT: Final = frozenset({"none", "null"})
_YES: Final = frozenset({"true", "yes", "on"})
_NO: Final = frozenset({"false", "no", "off"})
_TEXTS: Final = frozenset({str, Path, SecretStr, Literal})


@dataclass(frozen=True, slots=True)
class SettingKey:
    """One setting."""

    name: str
    """Dotted, as in `wake.words`."""
    default: PlainValue | None
    description: str
    kinds: frozenset[object]
    """Types it takes: bool, int, float, str, Path, SecretStr, Literal, tuple, NoneType."""

    @property
    def path(self) -> tuple[str, ...]:
        """Table and key."""
        return tuple(self.name.split("."))

    @property
    def secret(self) -> bool:
        """Never shown."""
        return SecretStr in self.kinds


@cache
def setting_keys() -> Mapping[str, SettingKey]:
    """Every setting by its name, in the order of the model."""
    return {key.name: key for key in _walk(Settings, "")}


def value_of(settings: Settings, key: SettingKey) -> PlainValue | None:
    """What a setting is."""
    value: Any = settings
    for step in key.path:
        value = getattr(value, step)
    return plain_value(value)


def plain_value(value: Any) -> PlainValue | None:
    """A field's value as the file holds it."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, tuple):
        return [str(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    plain: PlainValue | None = value
    return plain


def parse_value(key: SettingKey, text: str) -> PlainValue | None:
    """A value as typed: TOML, or plainer (`on`, `okay_nabu, alexa`, text without quotes); None for `none`.

    Says only what kind it is; ranges are the model's affair. Raises `UsageError`.
    """
    text = text.strip()
    if text.lower() in _ABSENT and NoneType in key.kinds:
        return None
    if tuple in key.kinds:
        return _list(key, text)
    if bool in key.kinds:
        return _switch(key, text)
    for kind in (int, float):
        if kind in key.kinds:
            try:
                return kind(text)
            except ValueError:
                continue
    if not _TEXTS & key.kinds:
        raise UsageError(f"{key.name} takes a number, not {text!r}")
    value = _toml(key, text) if text[:1] in {'"', "'"} else text
    if not isinstance(value, str):
        raise UsageError(f"{key.name} takes a text, not {text!r}")
    # A path typed here is meant from here; the file is read from anywhere.
    return str(Path(value).expanduser().absolute()) if Path in key.kinds else value


def suggestion(name: str) -> str:
    """`; did you mean wake.words?`, or nothing where no setting is called anything like it."""
    names = list(setting_keys())
    lasts = {full.rpartition(".")[2]: full for full in names}
    close = difflib.get_close_matches(name, names, 1) or difflib.get_close_matches(name, list(lasts), 1)
    return f"; did you mean {lasts.get(close[0], close[0])}?" if close else ""


def _walk(model: type[BaseModel], prefix: str) -> Iterator[SettingKey]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _walk(field.annotation, f"{prefix}{name}.")
        else:
            yield _key(f"{prefix}{name}", field)


def _key(name: str, field: FieldInfo) -> SettingKey:
    kinds = frozenset(_kinds(field.annotation))
    return SettingKey(name, plain_value(field.default), field.description or "", kinds)


def _kinds(annotation: Any) -> Iterator[object]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif origin in {Union, UnionType}:
        for arm in get_args(annotation):
            yield from _kinds(arm)
    else:
        yield annotation if origin is None else origin


def _list(key: SettingKey, text: str) -> list[str]:
    if not text.startswith("["):
        return [item.strip() for item in text.split(",") if item.strip()]
    items = _toml(key, text)
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise UsageError(f'{key.name} takes a list of texts such as a, b or ["a", "b"], not {text!r}')
    return items


def _switch(key: SettingKey, text: str) -> bool:
    if text.lower() in _YES | _NO:
        return text.lower() in _YES
    raise UsageError(f"{key.name} takes on or off, not {text!r}")


def _toml(key: SettingKey, text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        raise UsageError(f"{key.name}: {text!r} is not whole; check its quotes and brackets") from None
