"""The same words on every rung: all commands of ../shared/speech, free decoding. Markdown on standard output.

    .venv/bin/python benchmarks/rungs_bench.py [--speech DIR]

Compared with ONNX Runtime in FP32 as written; and, where a rung's words differ, whether they mean the same.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from appliance.app import ASR_PACK, WrenSettings, open_assistant
from appliance.audio.files import read_blocks
from appliance.audio.frame import RATE_HZ, Framer
from appliance.bench.material import COMMANDS, Clip, home_file, load_clips, speech_folder
from appliance.voice.asr.moonshine import DecodingLimits, MoonshineModel, MoonshineRecogniser
from appliance.voice.asr.tokenizer import Tokenizer
from models import AsrParameters, Store
from models.engines.rungs import Kind, open_kind

PARTS = ("encoder", "decoder")
KINDS = (
    Kind("ort-cpu", "fp32"),
    Kind("ort-cpu", "int8", "s8-dynamic"),
    Kind("numpy", "fp32"),
)
LEAD_S, TAIL_S = 0.4, 0.2
"""Sound before and after the speech that a session gives the recogniser too."""


def main() -> None:
    """Hear everything on every rung."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speech", type=Path)
    folder = speech_folder(parser.parse_args().speech)
    store, clips = Store(), load_clips(folder, COMMANDS)
    assistant, _ = open_assistant(WrenSettings(home_file=home_file(folder)))
    pack = store.open(ASR_PACK)
    parameters = pack.pack.parameters_as(AsrParameters)
    limits = DecodingLimits(tokens_per_s=parameters.max_tokens_per_s, min_samples=parameters.min_samples)
    tokenizer = Tokenizer.load(pack.path("tokenizer.bin"))
    wanted: list[str] = []
    print(f"| rung | clips | same words as {KINDS[0].name} | same meaning | CPU s |\n|---|---|---|---|---|")
    for kind in KINDS:
        engines = open_kind(store, ASR_PACK, PARTS, kind)
        model = MoonshineModel(
            engines["encoder"], engines["decoder"], tokenizer, parameters.begin_token, parameters.end_token, limits
        )
        began_s = time.process_time()
        heard = [_heard(MoonshineRecogniser(model), clip) for clip in clips]
        took_s = time.process_time() - began_s
        wanted = wanted or heard
        same = sum(one == other for one, other in zip(heard, wanted, strict=True))
        meanings = [[(m.intent, m.slots) for m in map(assistant.match, texts)] for texts in (heard, wanted)]
        meant = sum(one == other for one, other in zip(*meanings, strict=True))
        print(f"| {kind.name} | {len(clips)} | {same} | {meant} | {took_s:.1f} |", flush=True)
        for engine in engines.values():
            engine.close()


def _heard(recogniser: MoonshineRecogniser, clip: Clip) -> str:
    framer, start_s = Framer(), max(0.0, clip.speech_start_s - LEAD_S)
    for block in read_blocks(clip.path):
        for frame in framer.push(block):
            if start_s <= frame.seq * frame.samples.size / RATE_HZ < clip.speech_end_s + TAIL_S:
                recogniser.push(frame)
    return recogniser.flush().text


if __name__ == "__main__":
    main()
