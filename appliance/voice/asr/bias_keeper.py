"""Keeps a bias for the home: built in the background when its names change, the last one served meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from appliance.intent.types import HomeView
from appliance.voice.asr.bias import LetterBias
from appliance.voice.asr.protocol import Bias

__all__ = ["BiasCounts", "BiasKeeper", "home_bias"]

_LOG = logging.getLogger(__name__)

_WARM_STATES: Final = 2000
"""States made in the background with a new bias (0.2 s), so that the first utterance need not make them."""


def home_bias(view: HomeView) -> Bias:
    """The bias of a home: about a second, two for a thousand things. Raises IntentError where there is no grammar."""
    from appliance.intent.phrases import phrase_graph

    bias = LetterBias(phrase_graph(view))
    bias.warm(_WARM_STATES)
    return bias


@dataclass(slots=True)
class BiasCounts:
    """What the keeper did so far."""

    built: int = 0
    failed: int = 0


class BiasKeeper:
    """Serves the bias of a home. `current` may be called from any thread, as often as an utterance begins.

    At most one build runs at a time; what changes meanwhile is built after it. Where a build fails, the last good
    bias goes on being served, and the next change of names is another try.
    """

    def __init__(
        self,
        view: Callable[[], HomeView],
        submit: Callable[[Callable[[], None]], object],
        *,
        naming: Callable[[HomeView], object],
        build: Callable[[HomeView], Bias] = home_bias,
    ) -> None:
        """`submit` runs a job on some other thread, soon (an executor's `submit`); `naming` is the part of a
        view that the bias depends on (`lexicon.naming`): an equal one needs no new bias; `build` makes one."""
        self._view = view
        self._submit = submit
        self._build = build
        self._naming = naming
        self._lock = threading.Lock()
        self._current: Bias | None = None
        self._version: int | None = None
        """Of the view looked at last: an equal one is not looked at again."""
        self._named: object = None
        """What the last build was for, whether it went well or not."""
        self._building = False
        self.counts = BiasCounts()

    def current(self) -> Bias | None:
        """The newest bias there is, at once; None until the first is built. Orders a new one where names changed."""
        view = self._view()
        with self._lock:
            if not self._building and view.version != self._version:
                self._version = view.version
                named = self._naming(view)
                if named != self._named:
                    self._named = named
                    self._building = True
                    self._order(view)
            return self._current

    def _order(self, view: HomeView) -> None:
        try:
            self._submit(lambda: self._make(view))
        except RuntimeError as error:  # an executor that is shut down: the appliance is closing
            self._building = False
            self._failed(error)

    def _make(self, view: HomeView) -> None:
        try:
            made = self._build(view)
        except Exception as error:  # noqa: BLE001 - whatever it is, speech goes on being recognised without
            with self._lock:
                self._building = False
                self._failed(error)
            return
        with self._lock:
            self._building = False
            self._current = made
            self.counts.built += 1

    def _failed(self, error: Exception) -> None:
        self.counts.failed += 1
        _LOG.error("the phrases of the home could not be built: %s; the last ones stay in use", error, exc_info=error)
