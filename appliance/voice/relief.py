"""The ladder of degradation, as data: what Wren does without, step by step, when a stage cannot keep up.

What a session does follows from the steps that are taken now, so undoing one puts nothing back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["LADDER", "LIGHT_RECOGNISER", "LIGHT_VOICE", "NO_GUESSES", "Relief", "Step", "possible", "relief_of"]


@dataclass(frozen=True, slots=True)
class Relief:
    """What is done less, or otherwise. The default is all that Wren can do."""

    share: float = 1.0
    """Of the usual work ahead of the end (partials, guesses, replies made ahead); 0 is none."""
    light_recogniser: bool = False
    whole_replies: bool = False
    """A reply begins when all of it has been made."""
    light_voice: bool = False
    kept_replies: bool = False
    """Only what was made before is said; of the rest, that it can be read on the page."""
    patience: float = 1.0
    """Share of the time limit of a recognition after which the speaker is asked to say it again."""


LIGHT_RECOGNISER: Final = "light-recogniser"
LIGHT_VOICE: Final = "light-voice"
NO_GUESSES: Final = "no-guesses"

_HEARING: Final = frozenset({"wake", "vad"})
_UNDERSTANDING: Final = frozenset({"recognition", "intent"})
_SPEAKING: Final = frozenset({"synthesis", "playback"})


@dataclass(frozen=True, slots=True)
class Step:
    """One step."""

    name: str
    text: str
    """What follows from it, for people."""
    relieves: frozenset[str]
    """Stages that it helps: the others' strain does not lead to it."""
    relief: Relief
    needs: str | None = None
    """What must be installed."""
    to_get: str | None = None
    """The command that installs it."""


LADDER: Final[Sequence[Step]] = (
    Step("fewer-partials", "shows less often what it hears", _HEARING | _UNDERSTANDING, Relief(share=0.3)),
    Step(
        NO_GUESSES,
        "recognises and prepares nothing ahead, so answers come later",
        _HEARING | _UNDERSTANDING,
        Relief(share=0.0),
    ),
    Step(
        LIGHT_RECOGNISER,
        "recognises with a lighter model, and leaves locks and doors as they are",
        _HEARING | _UNDERSTANDING,
        Relief(light_recogniser=True),
        needs=LIGHT_RECOGNISER,
        to_get="wren models fetch moonshine-tiny-en",
    ),
    Step("whole-replies", "begins to speak when the whole reply is made", _SPEAKING, Relief(whole_replies=True)),
    Step(
        LIGHT_VOICE,
        "speaks with a lighter voice",
        _SPEAKING,
        Relief(light_voice=True),
        needs=LIGHT_VOICE,
        to_get="sudo apt-get install flite",
    ),
    Step(
        "kept-replies",
        "says only what it has said before; the rest is on the page",
        _SPEAKING,
        Relief(kept_replies=True),
    ),
    Step("say-again", "asks to say it again where recognising takes long", _UNDERSTANDING, Relief(patience=0.5)),
    Step(
        "overloaded",
        "cannot keep up: end other programs, or let Wren run on a faster machine (see: wren plan)",
        _HEARING | _UNDERSTANDING | _SPEAKING,
        Relief(),
    ),
)


def possible(ladder: Sequence[Step], has: Collection[str]) -> tuple[Step, ...]:
    """The steps that can be taken where `has` is installed."""
    return tuple(step for step in ladder if step.needs is None or step.needs in has)


def relief_of(steps: Sequence[Step]) -> Relief:
    """What holds where these steps are taken."""
    taken = [step.relief for step in steps]
    return Relief(
        share=min((r.share for r in taken), default=1.0),
        light_recogniser=any(r.light_recogniser for r in taken),
        whole_replies=any(r.whole_replies for r in taken),
        light_voice=any(r.light_voice for r in taken),
        kept_replies=any(r.kept_replies for r in taken),
        patience=min((r.patience for r in taken), default=1.0),
    )
