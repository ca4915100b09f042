"""A lighter recogniser for when this machine cannot keep up: its weights are there only while it is wanted.

It is opened on a thread of its own when the step of the ladder is taken (a second or so; until then the planned one
hears), and let go of some time after the step has been undone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Final

from appliance.engines import EngineOpener
from appliance.errors import ApplianceError
from appliance.machine import this_machine
from appliance.measuring import LIGHT_ASR
from appliance.planning import current_plan
from appliance.recognisers import open_moonshine
from hw.plan import Override, Overrides
from models.errors import ModelsError

if TYPE_CHECKING:
    from appliance.voice.asr.moonshine import MoonshineModel, MoonshineRecogniser

__all__ = ["KEPT_S", "LightRecogniser", "Opening", "opened_light"]

_LOG = logging.getLogger(__name__)

KEPT_S: Final = 600.0
"""Kept after it was last wanted: strain comes back. Longer than any utterance, so that nobody hears with it then."""

Opening = Callable[[], "AbstractContextManager[MoonshineModel]"]
"""Loads the weights, and lets go of them at the end. Raises `ApplianceError`, `ModelsError`."""


class LightRecogniser:
    """Thread-safe; nothing here waits for anything to open."""

    def __init__(self, opening: Opening, kept_s: float = KEPT_S) -> None:
        self._opening, self._kept_s = opening, kept_s
        self._changed = threading.Condition()
        self._wanted = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._model: MoonshineModel | None = None
        self._trouble: str | None = None
        self._last_s = 0.0
        """When it was last wanted, or given out."""

    def want(self, wanted: bool) -> None:
        """Have it opened, or let it go in a while; returns at once."""
        with self._changed:
            if self._closed or wanted is self._wanted:
                return
            self._wanted = wanted
            if wanted and self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="light recogniser", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def recogniser(self) -> MoonshineRecogniser | None:
        """A session's own hearing over the lighter weights; None while they are not here."""
        from appliance.voice.asr.moonshine import MoonshineRecogniser

        with self._changed:
            model, self._last_s = self._model, time.monotonic()
        return None if model is None else MoonshineRecogniser(model)

    @property
    def open(self) -> bool:
        """Whether its weights are in memory."""
        with self._changed:
            return self._model is not None

    @property
    def trouble(self) -> str | None:
        """Why it could not be opened when it was last wanted; None where it could, or is not wanted any more."""
        with self._changed:
            return self._trouble if self._wanted else None

    def close(self) -> None:
        """Let go of it for good; waits until that is done."""
        with self._changed:
            self._closed, self._wanted = True, False
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    # ---- the thread

    def _serve(self) -> None:
        while True:
            trouble = self._serve_once()
            with self._changed:
                self._model, self._trouble = None, trouble
                if trouble is not None or not self._wanted:
                    self._thread = None  # the next wish opens it anew
                    return

    def _serve_once(self) -> str | None:
        """Open it, keep it while it is wanted, let go of it; what went wrong."""
        try:
            with self._opening() as model:
                model.decoding  # noqa: B018 - made when first asked for: here, not while somebody waits for an answer
                _LOG.info("a lighter recogniser is open")
                self._keep(model)
        except (ApplianceError, ModelsError) as error:
            _LOG.warning("the lighter recogniser cannot be opened: %s", error)
            return f"the lighter recogniser cannot be opened: {error}"
        except Exception:  # noqa: BLE001 - a thread of its own: nobody else would hear of it
            _LOG.exception("the lighter recogniser")
            return "the lighter recogniser cannot be opened; the log says more"
        _LOG.info("the lighter recogniser has been let go of")
        return None

    def _keep(self, model: MoonshineModel) -> None:
        with self._changed:
            self._model, self._trouble, self._last_s = model, None, time.monotonic()
            while not self._closed:
                if self._wanted:
                    self._changed.wait()
                    self._last_s = time.monotonic()
                    continue
                left_s = self._last_s + self._kept_s - time.monotonic()
                if left_s <= 0.0:
                    break
                self._changed.wait(left_s)
            self._model = None  # before the weights go


@contextmanager
def opened_light(planned: EngineOpener) -> Iterator[MoonshineModel]:
    """The lighter recogniser, by a plan of its own: one thread, for what else asks too much goes on; as many bits as
    the planned one has on the processor, for that may have been measured."""
    store, choice = planned.store, planned.plan.tasks["asr"]
    precision = choice.precision if choice.backend == "ort-cpu" else None
    user = Overrides(tasks={"asr": Override(precision=precision, threads=1)})
    plan = current_plan(store, this_machine(store), user=user, asr=LIGHT_ASR)
    opener = EngineOpener(store, plan, emit=planned.emit)
    try:
        yield open_moonshine(opener, store.open(LIGHT_ASR))
    finally:
        opener.close()
