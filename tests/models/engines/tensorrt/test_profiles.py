"""Profiles: what is refused and how it is said, and that the table fits our graphs and what serves asks of them."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.voice.asr.moonshine import DecodingLimits
from appliance.voice.tts.piper import ChunkPlan
from models import Store
from models.engines.onnx_cpu import OrtCpuEngine
from models.engines.tensorrt.profiles import Span, covering, profiles_for, validate
from models.engines.tensorrt.sources import PARTS
from models.errors import ProfileError, UncoveredShapeError

FREE = {"a": (1, -1), "b": (3,)}


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        ([], "no profile, but these inputs have free dimensions: a"),
        ([{}], "profile 0 has no shapes for a"),
        ([{"a": Span((1, 1), (1, 2), (1, 3)), "c": Span((1,), (1,), (1,))}], "profile 0 names c; .* are a, b"),
        ([{"a": Span((1, 5), (1, 2), (1, 9))}], r"least \[1, 5\], usual \[1, 2\], most \[1, 9\] are not in order"),
        ([{"a": Span((1, 1), (1, 9), (1, 5))}], "not in order"),
        ([{"a": Span((1, -1), (1, 9), (1, 5))}], "not in order"),
        ([{"a": Span((1,), (1,), (1,))}], r"\[1\] has 1 dimensions, the graph's input 2"),
        ([{"a": Span((1, 1), (1, 2), (2, 3))}], r"\[2, 3\] does not fit the graph's \[1, -1\]"),
    ],
)
def test_what_is_wrong_with_a_profile_is_said(profiles: Any, message: str) -> None:
    with pytest.raises(ProfileError, match=message) as caught:
        validate(profiles, FREE)
    assert caught.value.code == "models.profile"


def test_good_profiles_pass_and_fixed_inputs_may_be_left_out() -> None:
    validate([{"a": Span((1, 0), (1, 2), (1, 3))}, {"a": Span((1, 3), (1, 3), (1, 3))}], FREE)
    validate([], {"b": (3,)})


@given(n=st.integers(0, 20))
def test_the_first_profile_that_covers_is_taken(n: int) -> None:
    spans = [Span((1,), (2,), (4,)), Span((3,), (5,), (9,)), Span((0,), (5,), (12,))]
    wanted = next((i for i, s in enumerate(spans) if s.least[0] <= n <= s.most[0]), None)
    found = None
    with contextlib.suppress(UncoveredShapeError):
        found = covering([{"x": span} for span in spans], {"x": (n,)})
    assert found == wanted


def test_a_graph_that_is_not_for_tensorrt_is_named() -> None:
    with pytest.raises(ProfileError, match="no profile for frontend of piper-en-us-joe"):
        profiles_for("piper-en-us-joe", "frontend")


@pytest.mark.models
@pytest.mark.parametrize(("pack_id", "part"), [(p, q) for p, parts in PARTS.items() for q in parts])
def test_the_table_fits_our_graphs(real_store: Store, pack_id: str, part: str) -> None:
    from models.engines.tensorrt.sources import _graph_file

    with contextlib.closing(OrtCpuEngine(_graph_file(real_store, pack_id, part, "fp32")[0])) as engine:
        inputs = {n: tuple(d if isinstance(d, int) else -1 for d in i.dims) for n, i in engine.inputs.items()}
    validate(profiles_for(pack_id, part).profiles, inputs)


def test_the_recognisers_profiles_cover_what_its_limits_allow() -> None:
    limits = DecodingLimits()
    encoder = profiles_for("moonshine-base-en", "encoder").profiles
    longest = int((limits.max_utterance_s + limits.pad_s) * 16_000)
    shortest = limits.min_samples + int(limits.pad_s * 16_000)
    for samples in np.linspace(shortest, longest, 50, dtype=int):
        covering(encoder, {"audio": (1, int(samples))})
    assert covering(encoder, {"audio": (1, 3 * 16_000 + 8000)}) == 0
    steps = int(limits.max_utterance_s * limits.tokens_per_s) + limits.spare_tokens
    decoder = profiles_for("moonshine-base-en", "decoder").profiles
    for past, frames, wanted in ((0, 1, 0), (63, longest // 384 + 1, 0), (steps - 1, longest // 384 + 1, 1)):
        shapes: dict[str, tuple[int, ...]] = {"ids": (1, 1), "rows": (1,)}
        for i in range(8):
            for c in "kv":
                shapes |= {f"past_{c}.{i}": (1, 8, past, 52), f"cross_{c}.{i}": (1, 8, frames, 52)}
        assert covering(decoder, shapes) == wanted


@given(frames=st.integers(1, 900))
def test_the_voices_profiles_cover_what_its_plan_asks_for(frames: int) -> None:
    plan = ChunkPlan()
    flow, vocoder = (profiles_for("piper-en-us-joe", part) for part in ("flow", "vocoder"))
    assert flow.padding is not None
    widest = max(p["latent"].most[2] for p in flow.profiles)
    known = 0
    for first, end in plan.chunks(frames):
        stop = min(frames, end + plan.vocoder_margin)
        if stop > known:
            until = min(frames, stop + (plan.flow_ahead if known else 0))
            piece = min(frames, until + plan.flow_margin) - max(0, known - plan.flow_margin)
            assert piece <= widest
            known = until
        covering(vocoder.profiles, {"spectral": (1, 192, stop - max(0, first - plan.vocoder_margin))})
