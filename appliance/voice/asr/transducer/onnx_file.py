"""What an ONNX file says of itself: metadata, inputs and outputs. Its weights are passed over, not read.

The runtime knows the same, but only once it has loaded a few hundred megabytes, and then it is an engine, whose
interface says nothing of the file. The few messages and field numbers are those of onnx.proto3 (ONNX, Apache-2.0).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.errors import SpeechError

__all__ = ["OnnxFile", "OnnxTensor", "read_onnx_file"]

_MODEL_GRAPH: Final = 7
_MODEL_METADATA: Final = 14
_GRAPH_INITIALISER: Final = 5
_GRAPH_INPUT: Final = 11
_GRAPH_OUTPUT: Final = 12
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Kinds of field on the wire."""


@dataclass(frozen=True, slots=True)
class OnnxTensor:
    """An input or output of the graph."""

    name: str
    dims: tuple[int | None, ...]
    """None where any size fits."""


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """The head of an ONNX file."""

    path: Path
    metadata: Mapping[str, str]
    inputs: tuple[OnnxTensor, ...]
    """In the order of the file, which is the order that an exporter gave them."""
    outputs: tuple[OnnxTensor, ...]


def read_onnx_file(path: Path) -> OnnxFile:
    """Read the head. Raises `SpeechError` where the file cannot be read or is no ONNX model."""
    try:
        with path.open("rb") as file:
            # Not closed by hand: slices of it may live on in an error's traceback, and it goes when they go.
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return _model(path, data)
    except OSError as error:
        raise SpeechError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, IndexError, KeyError):  # also an empty file, which cannot be mapped
        raise SpeechError(f"{path}: is no ONNX model; fetch it again") from None


def _model(path: Path, data: memoryview) -> OnnxFile:
    metadata: dict[str, str] = {}
    inputs: list[OnnxTensor] = []
    outputs: list[OnnxTensor] = []
    weights: set[str] = set()
    for number, value in _fields(data):
        if number == _MODEL_METADATA and isinstance(value, memoryview):
            entry = dict(_fields(value))
            metadata[_text(entry[1])] = _text(entry.get(2, b""))
        elif number == _MODEL_GRAPH and isinstance(value, memoryview):
            for field, part in _fields(value):
                if field == _GRAPH_INPUT and isinstance(part, memoryview):
                    inputs.append(_tensor(part))
                elif field == _GRAPH_OUTPUT and isinstance(part, memoryview):
                    outputs.append(_tensor(part))
                elif field == _GRAPH_INITIALISER and isinstance(part, memoryview):
                    weights.add(_name_of_weight(part))
    if not inputs or not outputs:
        raise ValueError("no graph")
    # Old exporters list the weights among the inputs too.
    given = tuple(tensor for tensor in inputs if tensor.name not in weights)
    return OnnxFile(path, metadata, given, tuple(outputs))


def _name_of_weight(data: memoryview) -> str:
    """TensorProto.name (8)."""
    return next((_text(value) for number, value in _fields(data) if number == 8), "")


def _tensor(data: memoryview) -> OnnxTensor:
    """ValueInfoProto: name (1), type (2) . tensor_type (1) . shape (2) . dim (1) . dim_value (1)."""
    name = ""
    dims: tuple[int | None, ...] = ()
    for number, value in _fields(data):
        if number == 1:
            name = _text(value)
        elif number == 2:
            shape = _inside(_inside(value, 1), 2)
            dims = tuple(_dim(dim) for field, dim in _fields(shape) if field == 1)
    return OnnxTensor(name, dims)


def _dim(data: int | memoryview) -> int | None:
    values = [value for number, value in _fields(data) if number == 1]
    return values[0] if values and isinstance(values[0], int) else None


def _inside(data: int | memoryview, wanted: int) -> memoryview:
    found = (value for number, value in _fields(data) if number == wanted and isinstance(value, memoryview))
    return next(found, memoryview(b""))


def _text(value: int | memoryview | bytes) -> str:
    if isinstance(value, int):
        raise ValueError("a number stands where a text should")
    return bytes(value).decode("utf-8")


def _fields(data: int | memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Field numbers and values of one message; those of fixed size are passed over."""
    if isinstance(data, int):
        raise ValueError("a number stands where a message should")
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, value
        elif kind == _BYTES:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise ValueError("the file ends inside a field")
            yield number, data[at : at + size]
            at += size
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"field of kind {kind}")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number without an end")
