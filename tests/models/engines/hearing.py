"""The recogniser as plainly as it goes: encoder, then the decoder's best token, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from models import AsrParameters, Store
from models.engines.base import Engine, Stream

Array = np.ndarray[Any, Any]

CLIPS = ("rht_turn_on_bedroom_light", "rht_what_time_is_it", "stp_pause", "rsp_turn_on_kitchen_lights")
"""Short recordings of ../shared/speech/commands."""


def clip(shared: Path, name: str) -> Array:
    """A recording with half a second of silence behind it, [1, n] at 16 kHz."""
    sound, rate = soundfile.read(shared / "speech" / "commands" / f"{name}.flac", dtype="float32")
    assert rate == 16_000
    return np.concatenate((sound, np.zeros(8_000, np.float32)))[None]


def tokens(store: Store, encoder: Stream, decoder: Stream, sound: Array) -> list[int]:
    """What is heard. The decoder is reset first, and left in the middle of its stream."""
    p = store.catalogue.get("moonshine-base-en").parameters_as(AsrParameters)
    cross = encoder.run({"audio": sound})
    decoder.reset()
    heard = [p.begin_token]
    for _ in range(int(sound.shape[1] / p.rate_hz * p.max_tokens_per_s)):
        feed = {"ids": np.array([[heard[-1]]]), "rows": np.zeros(1, np.int64), **cross}
        heard.append(int(decoder.run(feed)["logits"][0, -1].argmax()))
        if heard[-1] == p.end_token:
            break
    return heard[1:]


def hear(store: Store, encoder: Engine, decoder: Engine, sound: Array) -> list[int]:
    """`tokens` with streams of their own."""
    return tokens(store, encoder.stream(), decoder.stream(), sound)
