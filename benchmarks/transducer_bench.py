"""Processor time of a streaming transducer's features and search: `.venv/bin/python benchmarks/transducer_bench.py`.

With the small models of the tests, whose networks cost next to nothing; a real model's come on top. Least of ten runs.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from appliance.audio.frame import Samples
from appliance.intent.memory_home import default_home
from appliance.voice.asr.bias_keeper import home_bias
from appliance.voice.asr.protocol import Bias, Cancel
from appliance.voice.asr.transducer.recogniser import TransducerRecogniser
from tests.voice.asr.transducer.hearing import heard, model_of
from tests.voice.asr.transducer.small_models import changing_sound, write_nemo, write_zipformer

SECONDS = 3.0
RUNS = 10


def cpu_ms(work: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    """Milliseconds of processor time, the least of some runs; what comes before each is not counted."""
    times = []
    for _ in range(RUNS):
        before()
        began_s = time.process_time()
        work()
        times.append(time.process_time() - began_s)
    return min(times) * 1000


def row_of(folder: Path, phrases: Bias, others: Bias, sound: Samples) -> list[float]:
    """Milliseconds: pushing the sound, a first look without and with the home's phrases, a further look."""
    recogniser = TransducerRecogniser(model_of(folder))

    def push() -> None:
        recogniser.reset()
        heard(recogniser, sound)

    def look(bias: Bias | None) -> None:
        recogniser.hypothesise(recogniser.samples, bias, Cancel())

    pushed = cpu_ms(push)
    # After a look in another grammar, one goes on from nothing.
    first = [cpu_ms(lambda bias=bias: look(bias), lambda: look(others)) for bias in (None, phrases)]
    return [pushed, *first, cpu_ms(lambda: look(phrases))]


def main() -> None:
    """A table as Markdown."""
    phrases, others = (home_bias(default_home().view()) for _ in range(2))
    sound = changing_sound(SECONDS)
    print(
        f"| processor ms for {SECONDS:g} s | push | first look | in the home's phrases | again |\n|---|---|---|---|---|"
    )
    for name, write in (("Zipformer", write_zipformer), ("NeMo", write_nemo)):
        with tempfile.TemporaryDirectory() as folder:
            row = row_of(write(Path(folder)), phrases, others, sound)
        print(f"| {name} | " + " | ".join(f"{ms:.0f}" for ms in row) + " |")


if __name__ == "__main__":
    main()
