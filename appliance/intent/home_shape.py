"""The shape of a home file, for pydantic. Imported only when a file is read: pydantic takes its time to load."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

__all__ = ["AreaShape", "EntityShape", "FloorShape", "HomeShape", "SentenceShape"]

Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
Names = Annotated[list[Name], Field(max_length=100)]
Domain = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="allow", strict=False)


class FloorShape(_Shape):
    """A storey."""

    name: Name
    aliases: Names = []


class AreaShape(_Shape):
    """A room."""

    name: Name
    aliases: Names = []
    floor: Name | None = None


class EntityShape(_Shape):
    """A thing; keys besides these are kept among its attributes."""

    name: Name
    domain: Domain
    area: Name | None = None
    aliases: Names = []
    device_class: str | None = None
    supports: Annotated[list[str], Field(max_length=100)] | None = None
    state: bool | int | float | str | None = None
    attributes: dict[str, object] = {}


class SentenceShape(_Shape):
    """What people say, and the command that it stands for."""

    say: Annotated[list[Name], Field(min_length=1, max_length=50)]
    means: Name


class HomeShape(_Shape):
    """The whole file."""

    language: str = "en"
    satellite_area: Name | None = None
    floors: Annotated[list[FloorShape], Field(max_length=100)] = []
    areas: Annotated[list[AreaShape], Field(max_length=1000)] = []
    entities: Annotated[list[EntityShape], Field(max_length=10_000)] = []
    sentences: Annotated[list[SentenceShape], Field(max_length=500)] = []
