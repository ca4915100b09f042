"""Commands as they come over MQTT: bytes in, a checked command out, or a refusal with a code. Pure.

A payload is a JSON object, or the bare value that a person or Home Assistant would send: `40` for the volume,
`ON` for mute, the text itself for `say`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from appliance.errors import ApplianceError

__all__ = [
    "COMMANDS",
    "MAX_COMMAND_BYTES",
    "Alarm",
    "Announce",
    "Command",
    "CommandError",
    "CommandRow",
    "InstallModels",
    "Language",
    "Listen",
    "Mute",
    "Restart",
    "Say",
    "Stop",
    "TestSound",
    "TimerCancel",
    "TimerStart",
    "Timers",
    "Voice",
    "Volume",
    "WakeSensitivity",
    "WakeWord",
    "parse_command",
    "request_id",
]

MAX_COMMAND_BYTES: Final = 4096
"""A thousand characters of any script and what is around them."""
MAX_TEXT: Final = 1000
"""Characters to be spoken: about a minute."""
LONGEST_TIMER_S: Final = 30 * 24 * 3600
LONGEST_ALARM_S: Final = 3600
_NUMBER: Final = re.compile(r"[0-9]{1,3}(\.0{1,6})?", re.ASCII)

RequestId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:-]{1,64}$")]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_TEXT)]
Name = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")
]


class CommandError(ApplianceError):
    """A command was refused; nothing was changed. `reason` is the code that the error topic carries."""

    code = "mqtt.command"

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Command(BaseModel):
    """Base: every command may carry an id, which comes back in its answer."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: RequestId | None = None


class Say(Command):
    """Speak a text when nobody is busy."""

    text: Text


class Announce(Command):
    """Speak a text after a sound that makes people listen."""

    text: Text
    pre_announce: bool = True
    priority: Literal["normal", "high"] = "normal"
    """`high` goes before others that wait, and ends a conversation that is going on."""


class Listen(Command):
    """As if the wake word had been said."""


class Stop(Command):
    """End speech, listening, and the alarm; drop what waits to be said."""


class Volume(Command):
    """Set the volume."""

    percent: int = Field(ge=0, le=100)


class Mute(Command):
    """Close the microphone, or open it again."""

    muted: bool


class WakeSensitivity(Command):
    """How easily the wake word wakes."""

    percent: int = Field(ge=1, le=99)


class WakeWord(Command):
    """Listen for another wake word."""

    name: Name


class Voice(Command):
    """Speak with another voice."""

    name: Name


class Language(Command):
    """Speak another language."""

    code: Name


class TimerStart(Command):
    """Start a timer."""

    seconds: int = Field(ge=1, le=LONGEST_TIMER_S)
    name: Name | None = None


class TimerCancel(Command):
    """Cancel a timer by its number."""

    timer: int = Field(ge=0, le=2**53)


class Timers(Command):
    """List the timers; the list is in the answer."""


class Alarm(Command):
    """Sound the alarm, or end it; the fields are those of Home Assistant's siren."""

    state: Literal["ON", "OFF"]
    duration: Annotated[int, Field(ge=1, le=LONGEST_ALARM_S)] | None = None
    """Seconds; without it the alarm ends after ten minutes at the latest."""


class TestSound(Command):
    """Play a short tune on this machine's speaker."""


class Restart(Command):
    """Start Wren again."""


class InstallModels(Command):
    """Fetch newer model packs."""


def _nothing(payload: str) -> Mapping[str, object]:
    if payload.strip().upper() not in {"", "PRESS"}:
        raise ValueError("this command takes no value")
    return {}


def _percent(payload: str) -> Mapping[str, object]:
    if not _NUMBER.fullmatch(payload.strip()):
        raise ValueError(f"{_shown(payload)} is no whole number of percent")
    return {"percent": int(float(payload))}


def _switched(field: str) -> Callable[[str], Mapping[str, object]]:
    def read(payload: str) -> Mapping[str, object]:
        word = payload.strip().upper()
        if word not in {"ON", "OFF"}:
            raise ValueError(f"{_shown(payload)} is neither ON nor OFF")
        return {field: word == "ON"}

    return read


def _field(name: str) -> Callable[[str], Mapping[str, object]]:
    return lambda payload: {name: payload}


def _state(payload: str) -> Mapping[str, object]:
    return {"state": payload.strip().upper()}


def _install(payload: str) -> Mapping[str, object]:
    if payload.strip().upper() != "INSTALL":
        raise ValueError(f"{_shown(payload)} is not INSTALL")
    return {}


class CommandRow(NamedTuple):
    """How one command comes."""

    kind: type[Command]
    bare: Callable[[str], Mapping[str, object]] | None
    """Fields of a payload that is no JSON object; raises `ValueError` with what is wrong. None: it takes JSON only."""
    example: str


COMMANDS: Final[Mapping[str, CommandRow]] = {
    "alarm": CommandRow(Alarm, _state, '{"state": "ON", "duration": 60}'),
    "announce": CommandRow(
        Announce, _field("text"), '{"text": "Dinner is ready", "priority": "normal", "pre_announce": true, "id": "a1"}'
    ),
    "install_models": CommandRow(InstallModels, _install, "{}"),
    "language": CommandRow(Language, _field("code"), '{"code": "en"}'),
    "listen": CommandRow(Listen, _nothing, "{}"),
    "mute": CommandRow(Mute, _switched("muted"), '{"muted": true}'),
    "restart": CommandRow(Restart, _nothing, "{}"),
    "say": CommandRow(Say, _field("text"), '{"text": "Dinner is ready"}'),
    "stop": CommandRow(Stop, _nothing, "{}"),
    "test_sound": CommandRow(TestSound, _nothing, "{}"),
    "timer_cancel": CommandRow(TimerCancel, None, '{"timer": 3}'),
    "timer_start": CommandRow(TimerStart, None, '{"seconds": 300, "name": "pasta"}'),
    "timers": CommandRow(Timers, _nothing, "{}"),
    "voice": CommandRow(Voice, _field("name"), '{"name": "piper-en-us-joe"}'),
    "volume": CommandRow(Volume, _percent, '{"percent": 40}'),
    "wake_sensitivity": CommandRow(WakeSensitivity, _percent, '{"percent": 50}'),
    "wake_word": CommandRow(WakeWord, _field("name"), '{"name": "okay_nabu"}'),
}
"""By the last part of their topic."""


def parse_command(name: str, payload: bytes) -> Command:
    """The command that a message asks for. Raises `CommandError`, and nothing else."""
    row = COMMANDS.get(name)
    if row is None:
        raise CommandError("mqtt.unknown", f"there is no command {_shown(name)}, only {', '.join(COMMANDS)}")
    if len(payload) > MAX_COMMAND_BYTES:
        raise CommandError("mqtt.too_large", f"{len(payload)} bytes; a command has at most {MAX_COMMAND_BYTES}")
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        raise CommandError("mqtt.payload", f"byte {error.start} is not UTF-8; send text or JSON") from None
    try:
        if text.lstrip().startswith("{"):
            return row.kind.model_validate_json(text)
        if row.bare is None:
            raise ValueError("this command takes a JSON object")
        return row.kind.model_validate(row.bare(text))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        # The place may be a name that the sender made up.
        where = _printable(".".join(str(step) for step in first["loc"]))
        reason = f"{where + ': ' if where else ''}{first['msg']}"
    except ValueError as error:
        reason = str(error)
    raise CommandError("mqtt.payload", f"{reason}; send {row.example}")


def request_id(payload: bytes) -> str | None:
    """The id in a payload that was refused, so that whoever sent it knows which; None where there is no good one."""
    if len(payload) > MAX_COMMAND_BYTES or not payload.lstrip().startswith(b"{"):
        return None
    try:
        found = json.loads(payload)
        return Command.model_validate({"id": found.get("id")}).id if isinstance(found, dict) else None
    except (ValueError, RecursionError):
        return None


def _shown(text: str) -> str:
    return f"“{_printable(text)}”"


def _printable(text: str) -> str:
    """What was sent, short and on one line."""
    return "".join(char if char.isprintable() else "?" for char in text[:40])
