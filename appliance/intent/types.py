"""The words between hearing and acting: what was understood, what is done, what is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType, Protocol

__all__ = [
    "ActResult",
    "Area",
    "Entity",
    "Floor",
    "Home",
    "HomeCommand",
    "HomeView",
    "OwnSentence",
    "Reply",
    "SlotValue",
    "Understanding",
    "UtteranceId",
]

UtteranceId = NewType("UtteranceId", str)
"""Names one committed utterance; a home acts at most once per id."""

SlotValue = str | int | float


@dataclass(frozen=True, slots=True)
class Floor:
    """A storey of the home."""

    name: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Area:
    """A room, or a part of the home that people name."""

    name: str
    aliases: tuple[str, ...] = ()
    floor: str | None = None
    """Name of the floor it is on."""


@dataclass(frozen=True, slots=True)
class Entity:
    """A thing that can be spoken to or asked about."""

    id: str
    """Unique in the home, stable across reloads: `<domain>.<slug>`."""
    name: str
    domain: str
    area: str | None = None
    """Name of its area."""
    aliases: tuple[str, ...] = ()
    device_class: str | None = None
    supports: frozenset[str] = frozenset()
    state: str = "unknown"
    attributes: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OwnSentence:
    """What the home's people like to say for a command."""

    say: tuple[str, ...]
    """Every way to say it, in plain words."""
    means: str
    """The command, as it could be said otherwise."""


@dataclass(frozen=True, slots=True)
class HomeView:
    """An immutable picture of the home; `version` grows with every change of names or states."""

    version: int
    language: str
    satellite_area: str | None
    """Area of the microphone that hears the command, used where none is said."""
    floors: tuple[Floor, ...]
    areas: tuple[Area, ...]
    entities: tuple[Entity, ...]
    sentences: tuple[OwnSentence, ...] = ()


@dataclass(frozen=True, slots=True)
class Understanding:
    """What a text means in this home, or why it means nothing. Made without any side effect."""

    text: str
    """The text as recognised or typed."""
    intent: str | None
    """Home Assistant's intent name, or None where nothing was understood."""
    slots: Mapping[str, SlotValue] = field(default_factory=dict)
    """Slots as said; names resolved to the entity's own name, numbers as numbers."""
    response_key: str = "default"
    """Which of the intent's reply templates answers it."""
    area: str | None = None
    """Area of the microphone (context), used when the slots name none."""
    sorry: str | None = None
    """Where nothing was understood: the sentence that says what was not."""
    said: Mapping[str, str] = field(default_factory=dict)
    """The speaker's own words for each slot. A slot that is not here was fixed by the sentence or comes
    from the context."""
    named: tuple[str, ...] = ()
    """Entity ids that the `name` slot can mean; several where two things bear one name."""
    here: bool = False
    """True where the sentence means the room it is said in ("turn on the lights")."""
    unsure: bool = False
    """True where it was heard with less certainty than usual: what guards the home is left as it is then."""


@dataclass(frozen=True, slots=True)
class HomeCommand:
    """An intent resolved to things in this home, ready to be carried out."""

    intent: str
    slots: Mapping[str, SlotValue]
    targets: tuple[str, ...]
    """Entity ids it is for."""


@dataclass(frozen=True, slots=True)
class ActResult:
    """What became of a command."""

    ok: bool
    changed: tuple[str, ...] = ()
    """Entity ids whose state changed."""
    problem: str | None = None
    """Where not ok: one sentence that can be spoken."""
    repeated: bool = False
    """True where this utterance id had acted before and nothing was done again."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What is said back. An empty text means: say nothing."""

    text: str
    ok: bool
    understanding: Understanding


class Home(Protocol):
    """The home as the appliance sees it; implementations: in memory, MQTT, Home Assistant."""

    def view(self) -> HomeView:
        """The present picture; matching and recognition bias are built from it."""
        ...

    async def act(self, command: HomeCommand, key: UtteranceId) -> ActResult:
        """Carry out a command. Called only from Commit; one key acts once."""
        ...
