"""Which recogniser hears: Moonshine base, or what the settings name: tiny, or a streaming transducer.

`models.recogniser` is a pack of the catalogue (a transducer's is fetched with the user's consent: `wren models fetch
--consent`), or a folder with a transducer's files as sherpa-onnx publishes them: nothing of those is changed or
converted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.errors import SpeechError
from appliance.measuring import PACKS
from models.catalogue import AsrParameters, TransducerParameters
from models.engines.given import GivenGraphs

if TYPE_CHECKING:
    from appliance.engines import EngineOpener
    from appliance.voice.asr.moonshine import MoonshineModel
    from appliance.voice.asr.transducer.files import TransducerFiles
    from appliance.voice.asr.transducer.recogniser import TransducerModel
    from hw.plan import Overrides
    from models import InstalledPack, Pack, Store

__all__ = ["find_transducer", "given_graphs", "graphs_of", "moonshine_pack", "open_moonshine", "open_transducer"]


def moonshine_pack(store: Store, chosen: str | None) -> str | None:
    """Id of the Moonshine that was chosen; None where it is something else."""
    if chosen is None:
        return PACKS["asr"]
    packs = {pack.id: pack for pack in _recognisers(store)}
    return chosen if chosen in packs and isinstance(packs[chosen].parameters, AsrParameters) else None


def open_moonshine(opener: EngineOpener, pack: InstalledPack) -> MoonshineModel:
    """The model over engines opened by the plan. Raises `EngineError`, `SpeechError`."""
    from appliance.voice.asr.moonshine import DecodingLimits, MoonshineModel
    from appliance.voice.asr.tokenizer import Tokenizer

    parameters = pack.pack.parameters_as(AsrParameters)
    engines = opener.open("asr")
    limits = DecodingLimits(tokens_per_s=parameters.max_tokens_per_s, min_samples=parameters.min_samples)
    tokenizer = Tokenizer.load(pack.path("tokenizer.bin"))
    return MoonshineModel(
        engines["encoder"], engines["decoder"], tokenizer, parameters.begin_token, parameters.end_token, limits
    )


def find_transducer(store: Store, chosen: str | None, *, int8: bool = False) -> TransducerFiles | None:
    """The transducer that was chosen, its files read and checked, no weights loaded; None where it is Moonshine.

    `int8` asks for the files with fewer bits where a model comes in both. Raises `SpeechError`, which says what to
    do, and `ModelsError` where a pack is not there or damaged.
    """
    from appliance.voice.asr.transducer.files import read_folder

    if chosen is None or moonshine_pack(store, chosen) is not None:
        return None
    if "/" in chosen or chosen.startswith("~"):
        return read_folder(Path(chosen).expanduser().absolute(), int8=int8)
    there = [pack.id for pack in _recognisers(store)]
    if chosen not in there:
        raise SpeechError(
            f"models.recogniser is {chosen!r}, which is no recogniser of the catalogue ({', '.join(there)})"
            " and no folder: a folder is given as a path with a slash"
        )
    return read_folder(store.open(chosen).folder, int8=int8)


def _recognisers(store: Store) -> list[Pack]:
    """All of the catalogue that Wren can hear with."""
    packs = (*store.catalogue.pack, *store.catalogue.extra)
    return [pack for pack in packs if isinstance(pack.parameters, AsrParameters | TransducerParameters)]


def given_graphs(store: Store, chosen: str | None, user: Overrides) -> Mapping[str, GivenGraphs]:
    """What the plan is made for instead of packs: task -> its graphs. Raises as `find_transducer` does."""
    asr = user.tasks.get("asr")
    files = find_transducer(store, chosen, int8=asr is not None and asr.precision == "int8")
    return {} if files is None else {"asr": graphs_of(files)}


def graphs_of(files: TransducerFiles) -> GivenGraphs:
    """The graphs as `EngineOpener` and the plan take them."""
    states = {"encoder": files.metadata.states}
    return GivenGraphs(files.folder.name, files.graphs, files.precision, states, files.mb)


def open_transducer(opener: EngineOpener, files: TransducerFiles) -> TransducerModel:
    """The model over engines opened by the plan. Raises `EngineError`."""
    from appliance.voice.asr.transducer.recogniser import TransducerModel

    engines = opener.open("asr")
    return TransducerModel(files.metadata, engines["encoder"], engines["decoder"], engines["joiner"], files.labels)
