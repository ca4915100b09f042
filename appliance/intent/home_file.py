"""Reading a home from a file: the JSON form of the design's "Home file", checked before anything is built on it.

Kind where kindness is safe: an area or floor that an entity names and nobody listed is added (and logged); unknown
keys are kept among the attributes. Strict where a slip would move the wrong thing: two areas of one name, or a
microphone in a room that does not exist.
"""

from __future__ import annotations

import json
import logging
import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from appliance.errors import HomeFileError
from appliance.intent.language import known_languages
from appliance.intent.types import Area, Entity, Floor, HomeView, OwnSentence

if TYPE_CHECKING:
    from appliance.intent.home_shape import AreaShape, EntityShape, HomeShape, SentenceShape

__all__ = ["MAX_BYTES", "load_home_file", "parse_home"]

MAX_BYTES: Final = 4 * 1024 * 1024
"""A home of ten thousand things is a tenth of it."""

_CAN_ALL: Final = {"light": frozenset({"brightness", "color", "color_temp"})}
"""What a thing is taken to support where the file does not say, by domain."""

_ON_OFF: Final = {True: "on", False: "off"}

_LOGGER = logging.getLogger(__name__)


def load_home_file(path: str | Path) -> HomeView:
    """Read a home file. Raises HomeFileError that says what is wrong, with which value, and what to do."""
    path = Path(path)
    try:
        if path.is_dir():
            raise HomeFileError(f"{path} is a directory: give the home file inside it, for example {path}/home.json")
        if path.stat().st_size > MAX_BYTES:
            raise HomeFileError(
                f"{path} is {path.stat().st_size} bytes; a home file has at most {MAX_BYTES}: is it the right file?"
            )
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)  # a device or a pipe has no size to look at first
    except FileNotFoundError:
        raise HomeFileError(f"there is no home file {path}: check the path") from None
    except (OSError, ValueError) as error:
        raise HomeFileError(f"the home file {path} cannot be read ({error}): check its permissions") from error
    if len(raw) > MAX_BYTES:
        raise HomeFileError(f"{path} has more than {MAX_BYTES} bytes: is it the right file?")
    return parse_home(raw, str(path))


def parse_home(raw: bytes, source: str) -> HomeView:
    """Read a home from the bytes of a home file; `source` names it in errors. Raises HomeFileError."""
    shape = _shape(_json(raw, source), source)
    _refuse_twins("area", (a.name for a in shape.areas), source)
    _refuse_twins("floor", (f.name for f in shape.floors), source)
    if shape.language not in known_languages():
        _refuse(source, f"language {shape.language!r} is not known", f"use {' or '.join(known_languages())}")
    floors = {f.name: Floor(f.name, tuple(f.aliases)) for f in shape.floors}
    areas = _areas(shape, floors, source)
    entities = _entities(shape, areas, source)
    satellite_area = _known(shape.satellite_area, areas)
    if shape.satellite_area is not None and satellite_area is None:
        names = ", ".join(list(areas)[:10]) or "none"
        _refuse(
            source,
            f"satellite_area {shape.satellite_area[:80]!r} is none of its areas ({names})",
            "add the area or correct the name",
        )
    return HomeView(
        version=1,
        language=shape.language,
        satellite_area=satellite_area,
        floors=tuple(floors.values()),
        areas=tuple(areas.values()),
        entities=entities,
        sentences=_sentences(shape.sentences, source),
    )


def _sentences(shapes: Iterable[SentenceShape], source: str) -> tuple[OwnSentence, ...]:
    from appliance.intent.own_sentences import ways_of

    sentences = []
    for shape in shapes:
        ways: list[str] = []
        for template in shape.say:
            try:
                ways += ways_of(template)
            except ValueError as error:
                _refuse(source, f"the sentence {template[:80]!r}", str(error))
        sentences.append(OwnSentence(tuple(dict.fromkeys(ways)), shape.means))
    _refuse_twins("sentence", (way for sentence in sentences for way in sentence.say), source)
    return tuple(sentences)


def _json(raw: bytes, source: str) -> object:
    def no_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not a JSON number")

    try:
        return json.loads(raw.decode("utf-8-sig"), parse_constant=no_constant)
    except UnicodeDecodeError as error:
        _refuse(source, f"it is not UTF-8 text (byte {error.start})", "save it as UTF-8 JSON")
    except json.JSONDecodeError as error:
        _refuse(source, f"it is not JSON: {error.msg} at line {error.lineno}, column {error.colno}", "correct it there")
    except RecursionError:
        _refuse(source, "it is nested too deeply", "a home file needs four levels")
    except ValueError as error:
        _refuse(source, f"it holds a value that JSON does not allow ({str(error)[:80]})", "correct the value")


def _shape(data: object, source: str) -> HomeShape:
    from pydantic import ValidationError

    from appliance.intent.home_shape import HomeShape

    try:
        return HomeShape.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole file"
        value = repr(first.get("input"))
        shown = value if len(value) <= 60 else f"{value[:60]}…"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        _refuse(source, f"{where}: {first['msg'].lower()}, got {shown}{more}", "see the home file in the design")
    except RecursionError:
        _refuse(source, "it is nested too deeply", "a home file needs four levels")


def _areas(shape: HomeShape, floors: dict[str, Floor], source: str) -> dict[str, Area]:
    areas: dict[str, Area] = {}
    for area in shape.areas:
        floor = area.floor
        if floor is not None and (known := _known(floor, floors)) is None:
            _LOGGER.warning("%s: area %s is on an unlisted floor, %s: added", source, area.name, floor)
            floors[floor] = Floor(floor)
        elif floor is not None:
            floor = known
        areas[area.name] = _area(area, floor)
    return areas


def _area(area: AreaShape, floor: str | None) -> Area:
    return Area(area.name, tuple(area.aliases), floor)


def _entities(shape: HomeShape, areas: dict[str, Area], source: str) -> tuple[Entity, ...]:
    taken: set[str] = set()
    entities = []
    for entity in shape.entities:
        area = entity.area
        if area is not None and (known := _known(area, areas)) is None:
            _LOGGER.warning("%s: %s is in an unlisted area, %s: added", source, entity.name, area)
            areas[area] = Area(area)
        elif area is not None:
            area = known
        entity_id = _free_id(entity.domain, entity.name, taken)
        taken.add(entity_id)
        entities.append(_entity(entity, entity_id, area))
    return tuple(entities)


def _entity(entity: EntityShape, entity_id: str, area: str | None) -> Entity:
    attributes = {**(entity.model_extra or {}), **entity.attributes}
    device_class = entity.device_class or attributes.get("device_class")
    can_all = _CAN_ALL.get(entity.domain, frozenset())
    state = entity.state
    return Entity(
        id=entity_id,
        name=entity.name,
        domain=entity.domain,
        area=area,
        aliases=tuple(entity.aliases),
        device_class=device_class if isinstance(device_class, str) else None,
        supports=can_all if entity.supports is None else frozenset(entity.supports),
        state="unknown" if state is None else _ON_OFF[state] if isinstance(state, bool) else str(state),
        attributes=attributes,
    )


def _free_id(domain: str, name: str, taken: set[str]) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "_", plain).strip("_") or "unnamed"
    candidate, n = f"{domain}.{slug}", 1
    while candidate in taken:
        n += 1
        candidate = f"{domain}.{slug}_{n}"
    return candidate


def _known(name: str | None, things: Mapping[str, Area] | Mapping[str, Floor]) -> str | None:
    """The own name of the thing that is called so, by name or alias, without case."""
    if name is None or name in things:
        return name
    wanted = name.casefold()
    for own, thing in things.items():
        if any(wanted == n.casefold() for n in (own, *thing.aliases)):
            return own
    return None


def _refuse_twins(kind: str, names: Iterable[str], source: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            _refuse(source, f"the {kind} {name[:80]!r} is there twice", "give each its own name")
        seen.add(name.casefold())


def _refuse(source: str, what: str, advice: str) -> NoReturn:
    line: Any = " ".join(f"home file {source}: {what}: {advice}".split())
    raise HomeFileError(line)
