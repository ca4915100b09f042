"""`wren mqtt`: how Wren stands at the broker, and taking it away from there."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from appliance.cli.common import print_json, warn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from appliance.mqtt.places import Place
    from appliance.mqtt.visit import Visit
    from appliance.settings import MqttSettings

__all__ = ["add", "run"]

_COLUMN: Final = 20


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its options."""
    parser = subparsers.add_parser("mqtt", help="how Wren stands at the MQTT broker; take it away from there")
    actions = parser.add_subparsers(dest="action", required=True, metavar="status|remove")
    status = actions.add_parser("status", help="what stands at the broker")
    remove = actions.add_parser("remove", help="clear all that Wren has left there; Home Assistant forgets it")
    remove.add_argument(
        "--id", metavar="ID", help="of another Wren, which is gone: the last part of its topics, as wren-4f2a9c01"
    )
    for action in (status, remove):
        action.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Dispatch."""
    spot = _spot(getattr(arguments, "id", None))
    return {"status": _status, "remove": _remove}[arguments.action](arguments, spot)


@dataclass(frozen=True, slots=True)
class _Spot:
    """An appliance at a broker."""

    settings: MqttSettings
    """With `host` set, to Wren's own broker where there is no other."""
    own: bool
    """It is Wren's own."""
    device: str
    places: tuple[Place, ...]
    """Where something of it may stand; the current one last."""

    @property
    def base(self) -> str:
        return self.places[-1].base(self.device)

    @property
    def filters(self) -> list[str]:
        return list(dict.fromkeys(one for place in self.places for one in place.filters(self.device)))


def _spot(device: str | None) -> _Spot:
    from appliance.errors import UsageError
    from appliance.mqtt.broker import EmbeddedBroker
    from appliance.mqtt.client_id import ID, kept_id, state_folder
    from appliance.mqtt.places import Place, known_places
    from appliance.settings import load_settings

    if device is not None and not ID.fullmatch(device):
        raise UsageError(f"{device!r} is no id of a Wren; it looks like wren-4f2a9c01")
    settings, folder = load_settings().settings.mqtt, state_folder()
    own = settings.host is None
    if own:
        if not settings.embedded:
            raise UsageError("no broker is set; run: wren config set mqtt.host YOUR-BROKER")
        settings = EmbeddedBroker(folder, port=settings.port).settings(settings)
    now = Place(settings.prefix, settings.discovery_prefix)
    former = tuple(place for place in known_places(folder) if place != now)
    return _Spot(settings, own, device or kept_id(folder), (*former, now))


def _status(arguments: argparse.Namespace, spot: _Spot) -> int:
    from appliance.mqtt.client_faults import LinkFault
    from appliance.mqtt.visit import Visit

    try:
        with Visit(spot.settings, spot.device) as visit:
            found = visit.look(spot.filters)
            facts = _facts(spot, visit, found)
    except LinkFault as fault:
        if spot.own:
            raise LinkFault(fault.trouble, f"{fault} Wren's own broker runs while `wren run` does") from None
        raise
    if arguments.json:
        print_json(facts)
        return 0
    states: Mapping[str, object] = facts.pop("states")  # type: ignore[assignment]
    for name, value in (*facts.items(), *states.items()):
        if value == []:  # nothing is denied
            continue
        print(_printable(f"{name:<{_COLUMN}} {_text(value)}"))
    if facts["availability"] is None:
        warn("nothing of this Wren stands there; was it started, and may its account read these topics?")
    return 0


def _facts(spot: _Spot, visit: Visit, found: Mapping[str, bytes]) -> dict[str, object]:
    base = spot.base
    availability = found.get(f"{base}/availability")
    return {
        "broker": visit.broker,
        "protocol": visit.protocol,
        "topics": f"{base}/#",
        "availability": None if availability is None else _read(availability),
        "discovery": sum(topic.endswith("/config") and not topic.startswith(f"{base}/") for topic in found),
        "denied": sorted(visit.denied),
        "states": {
            topic.removeprefix(f"{base}/state/"): _read(payload)
            for topic, payload in sorted(found.items())
            if topic.startswith(f"{base}/state/")
        },
    }


def _remove(arguments: argparse.Namespace, spot: _Spot) -> int:
    from appliance.mqtt.client_id import state_folder
    from appliance.mqtt.places import keep_place
    from appliance.mqtt.protocol import ONLINE
    from appliance.mqtt.visit import Visit, VisitError

    if spot.own:
        if arguments.json:
            print_json({"removed": [], "left": []})
        else:
            print("Wren's own broker keeps nothing: what stands there ends with Wren.")
        return 0
    with Visit(spot.settings, spot.device) as visit:
        found = visit.look(spot.filters)
        if found.get(f"{spot.base}/availability") == ONLINE:
            raise VisitError(f"{spot.device} is online, and would tell all of it again; stop it first")
        visit.clear(sorted(found))
    with Visit(spot.settings, spot.device) as visit:
        left = sorted(visit.look(spot.filters))
    removed = sorted(found.keys() - set(left))
    if not left and arguments.id is None:
        keep_place(state_folder(), spot.places[-1])
    if arguments.json:
        print_json({"removed": removed, "left": left})
    else:
        many = f"{len(removed)} topic{'' if len(removed) == 1 else 's'}"
        print(f"{spot.device} is taken away from {visit.broker}: {many} cleared." if removed else _nothing(spot))
    if left:
        warn(_printable(f"the broker keeps {', '.join(left)}; look at its access list"))
    return 1 if left else 0


def _nothing(spot: _Spot) -> str:
    return f"Nothing that this account may read stands at the broker under {', '.join(spot.filters)}."


def _read(payload: bytes) -> object:
    """As JSON, where it is that; `None` is how MQTT says "not known"."""
    text = payload.decode(errors="replace")
    try:
        return None if text == "None" else json.loads(text)
    except (ValueError, RecursionError):
        return text


def _text(value: object) -> str:
    if value is None:
        return "not known"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _printable(text: str) -> str:
    """What stands at a broker was written by whoever may write there: a terminal is not to obey it."""
    return "".join(char if char.isprintable() else "?" for char in text)
