"""Small homes for tests."""

from __future__ import annotations

import asyncio
from datetime import datetime

from appliance.intent.assistant import Assistant
from appliance.intent.memory_home import MemoryHome
from appliance.intent.types import Area, Entity, Floor, HomeView, Reply, UtteranceId

NOON = datetime(2024, 6, 1, 12, 0, 0)

LIGHT_CAN = frozenset({"brightness", "color", "color_temp"})


def entity(name: str, domain: str = "light", area: str | None = None, **more: object) -> Entity:
    """An entity whose id is made from everything that tells it apart."""
    slug = f"{name}_{area}".lower().replace(" ", "_")
    more.setdefault("supports", LIGHT_CAN if domain == "light" else frozenset())
    return Entity(id=f"{domain}.{slug}", name=name, domain=domain, area=area, **more)  # type: ignore[arg-type]


def home(
    *entities: Entity, areas: tuple[str, ...] = ("Kitchen", "Office", "Bedroom"), here: str | None = "Kitchen"
) -> MemoryHome:
    """A home of these entities, with the microphone in the kitchen."""
    return MemoryHome(
        HomeView(
            version=1,
            language="en",
            satellite_area=here,
            floors=(Floor("Upstairs"),),
            areas=tuple(Area(a, floor="Upstairs" if a == "Bedroom" else None) for a in areas),
            entities=entities,
        )
    )


def assistant(*entities: Entity, here: str | None = "Kitchen") -> Assistant:
    """An assistant in a home of these entities, at noon."""
    return Assistant(home(*entities, here=here), clock=lambda: NOON)


def say(who: Assistant, text: str, key: str = "u1") -> Reply:
    """Match and commit in one go."""
    return asyncio.run(who.commit(who.match(text), UtteranceId(key)))


def state_of(house: MemoryHome, name: str, area: str | None = None) -> Entity:
    """The entity of that name (in that area)."""
    (found,) = [e for e in house.view().entities if e.name == name and (area is None or e.area == area)]
    return found
