"""What a graph takes and gives, and the checks that every backend makes before it touches the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.engines.base import Array, State, StateTensor
from models.errors import EngineError

__all__ = ["Signature", "TensorInfo"]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output of a graph."""

    name: str
    dtype: np.dtype[Any]
    dims: tuple[int | str | None, ...]
    """A number is fixed, anything else free."""


class Signature:
    """A graph's inputs, outputs and states. Raises `EngineError` with `name` in front for whatever does not fit."""

    def __init__(
        self,
        name: str,
        inputs: Mapping[str, TensorInfo],
        outputs: Mapping[str, TensorInfo],
        states: tuple[StateTensor, ...],
    ) -> None:
        """`inputs` and `outputs` are all of the graph's, the states' among them."""
        self.name = name
        self.states = states
        for state in states:
            if state.input not in inputs or state.output not in outputs:
                raise EngineError(f"{name}: the graph has no recurrent tensor {state.input} -> {state.output}")
            self.check(inputs[state.input], state.initial())
        recurrent = {s.input for s in states} | {s.output for s in states}
        self.inputs = {n: i for n, i in inputs.items() if n not in recurrent}
        """What every run is given."""
        self.outputs = {n: o for n, o in outputs.items() if n not in recurrent}
        """What every run returns."""

    def check(self, info: TensorInfo, value: Array) -> None:
        """That the array has the dtype, the number of dimensions and the fixed ones that the graph wants."""
        if value.dtype != info.dtype:
            raise EngineError(f"{self.name}: input {info.name} wants {info.dtype}, got {value.dtype}")
        if value.ndim != len(info.dims):
            raise EngineError(
                f"{self.name}: input {info.name} wants {len(info.dims)} dimensions {list(info.dims)}, got {value.shape}"
            )
        if any(isinstance(dim, int) and size != dim for size, dim in zip(value.shape, info.dims, strict=True)):
            raise EngineError(
                f"{self.name}: invalid dimensions for input: {info.name} wants {list(info.dims)}, got {value.shape}"
            )

    def check_inputs(self, inputs: Mapping[str, Array]) -> None:
        """That a run is given all inputs and no other, each fitting."""
        if inputs.keys() != self.inputs.keys():
            raise EngineError(f"{self.name}: wants inputs {sorted(self.inputs)}, got {sorted(inputs)}")
        for info in self.inputs.values():
            self.check(info, inputs[info.name])

    def check_state(self, state: State) -> None:
        """That a snapshot is one of this model."""
        names = {s.input: s for s in self.states}
        if state.keys() != names.keys():
            raise EngineError(f"{self.name}: the state has {sorted(state)}, wanted {sorted(names)}")
        for name, value in state.items():
            wanted = names[name]
            if value.dtype != np.dtype(wanted.dtype) or value.ndim != len(wanted.shape):
                raise EngineError(
                    f"{self.name}: state {name} is {value.dtype} {value.shape}, "
                    f"wanted {wanted.dtype} with {len(wanted.shape)} dimensions"
                )
