"""What a page may say over the WebSocket; docs/protocol.md describes it."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from appliance.web.errors import ProtocolError

__all__ = ["ClientMessage", "Encoding", "Listen", "Missed", "Played", "Start", "Stop", "Watch", "parse_message"]

MAX_TEXT: Final = 4096
"""Characters; ours have under 100."""
MAX_MISSED: Final = 1 << 32
"""Samples: six hours of the highest rate; a page that was away for longer has no session any more."""

Encoding = Literal["s16le", "f32le"]


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Start(_Message):
    """Open a session; sound follows as binary messages. Without `wake` an utterance begins at once."""

    type: Literal["start"]
    rate_hz: int = Field(ge=8_000, le=192_000)
    encoding: Encoding = "s16le"
    wake: bool = False


class Listen(_Message):
    """Begin an utterance in the open session; what is going on is stopped."""

    type: Literal["listen"]


class Stop(_Message):
    """End the session, silently."""

    type: Literal["stop"]


class Missed(_Message):
    """Sound before the next block that could not be sent: the network was too slow for it."""

    type: Literal["missed"]
    samples: int = Field(ge=1, le=MAX_MISSED)
    """At the microphone's rate."""


class Played(_Message):
    """The last sample of a reply has been played."""

    type: Literal["played"]
    generation: int
    underruns: int = Field(default=0, ge=0)
    """Times that the page had nothing to play in the middle of the reply."""


class Watch(_Message):
    """Which sessions' events to send."""

    type: Literal["watch"]
    sessions: Literal["own", "all"]


ClientMessage = Start | Listen | Stop | Missed | Played | Watch
_ADAPTER: Final[TypeAdapter[ClientMessage]] = TypeAdapter(Annotated[ClientMessage, Field(discriminator="type")])


def parse_message(text: str) -> ClientMessage:
    """Read a text message. Raises `ProtocolError` that says what is wrong with it."""
    if len(text) > MAX_TEXT:
        raise ProtocolError(f"a message of {len(text)} characters; the longest is {MAX_TEXT}")
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise ProtocolError(f"{where + ': ' if where else ''}{first['msg']}; see docs/protocol.md") from None
