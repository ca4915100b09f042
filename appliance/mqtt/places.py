"""Where Wren has told of itself: prefixes that were changed since would leave ghosts at the broker for ever."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

from appliance.mqtt.client_topics import check_topic, overlap
from appliance.mqtt.discovery import discovery_filters
from models.files import write_whole

__all__ = ["Place", "former_places", "ghost_filters", "keep_place", "known_places"]

_LOG = logging.getLogger(__name__)

FILE: Final = "places.json"
MAX_FORMER: Final = 8
"""Nobody changes prefixes more often between two connections; the newest are kept."""
MAX_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Place:
    """The two prefixes under which all topics of an appliance stand."""

    prefix: str
    discovery_prefix: str

    def base(self, device: str) -> str:
        """Of all topics but those of discovery."""
        return f"{self.prefix}/{device}"

    def filters(self, device: str) -> tuple[str, str, str]:
        """Matches all that an appliance leaves at a broker."""
        return f"{self.base(device)}/#", *discovery_filters(self.discovery_prefix, device)


def known_places(folder: Path) -> list[Place]:
    """Where something of this Wren may stand, oldest first; none where it has never been started. Never raises."""
    file = folder / FILE
    try:
        text = file.read_bytes()[:MAX_BYTES]
        places = [Place(prefix, discovery) for prefix, discovery in json.loads(text)]
        for place in places:
            for name in astuple(place):
                check_topic(name)
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        _LOG.warning("%s cannot be read (%s): what Wren told under former prefixes stays at the broker", file, error)
        return []
    return places


def ghost_filters(former: Sequence[Place], now: Place, device: str) -> tuple[str, ...]:
    """Matches what stands where Wren was before, and nothing of where it is now. Pure."""
    kept = now.filters(device)
    # Where one prefix lies inside another, a few ghosts stay: better than to clear what is wanted.
    ghosts = (
        one for place in former for one in place.filters(device) if not any(overlap(one, other) for other in kept)
    )
    return tuple(dict.fromkeys(ghosts))


def former_places(folder: Path, now: Place) -> tuple[Place, ...]:
    """Where Wren was before, oldest first; `now` is noted, so that the next start knows it. Never raises: what cannot
    be read or kept costs ghosts, not MQTT."""
    held = known_places(folder)
    if now not in held:
        _keep(folder / FILE, [*held, now][-MAX_FORMER - 1 :])
    return tuple(place for place in held if place != now)


def keep_place(folder: Path, now: Place) -> None:
    """Forget all others: nothing of Wren stands there any more."""
    _keep(folder / FILE, [now])


def _keep(file: Path, places: list[Place]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(file, json.dumps([astuple(place) for place in places]).encode())
    except OSError as error:
        _LOG.warning("%s cannot be kept (%s): after a change of prefixes, ghosts stay", file, error.strerror)
