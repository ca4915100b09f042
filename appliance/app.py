"""The one place that puts the parts together: models, home and voice become sessions."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.apology import SENTENCES
from appliance.audio.realtime import move_with
from appliance.engines import EngineOpener
from appliance.errors import ApplianceError
from appliance.events import Listener
from appliance.light import LightRecogniser, opened_light
from appliance.machine import this_machine
from appliance.measuring import LIGHT_ASR, PACKS, PARTS
from appliance.planning import current_plan
from appliance.recognisers import find_transducer, graphs_of, moonshine_pack, open_moonshine, open_transducer
from appliance.shared_assistant import SharedAssistant
from appliance.strain import Strain
from appliance.voice.asr.bias_keeper import BiasKeeper
from appliance.voice.asr.moonshine import MoonshineModel, MoonshineRecogniser
from appliance.voice.asr.transducer.recogniser import TransducerModel, TransducerRecogniser
from appliance.voice.endpoint import EndpointSettings, EndpointStyle, SilenceSettings, make_endpoint
from appliance.voice.guards import BUSY_REPLY, Guard, GuardedRecogniser, GuardedSynthesiser, GuardedThinker
from appliance.voice.meter import Metered, MeteredWake, SessionMeter, WakeListener
from appliance.voice.parts import Alarm, Ears, Synthesiser, full_share
from appliance.voice.relief import LIGHT_RECOGNISER, LIGHT_VOICE, NO_GUESSES, Relief
from appliance.voice.session import Player, Runner, Session, SessionParts, SessionSettings
from appliance.voice.tts.cache import ReplyCache, ReplyKey
from appliance.voice.tts.flite import FliteSynthesiser, find_flite
from appliance.voice.tts.phonemes import EspeakPhonemiser
from appliance.voice.tts.piper import ChunkPlan, PiperSynthesiser, PiperVoice, VoiceConfig
from appliance.voice.tts.spoken import spoken
from appliance.voice.vad import VadTensors, VoiceActivity
from appliance.voice.wake import WakeDetector, WakeSettings
from hw.cpu import keep_thread_on
from hw.plan import Overrides
from hw.thermal import HeatAdvice
from models import InstalledPack, Progress, Store, TtsParameters, silent
from models.convert import Artefact, prepare
from models.errors import ConversionError, ModelsError
from models.graphs import forms

if TYPE_CHECKING:
    from appliance.intent.assistant import Assistant
    from appliance.intent.types import Home
    from appliance.telemetry.strain import StrainSettings
    from appliance.voice.asr.protocol import Bias, Recogniser
    from appliance.voice.asr.transducer.files import TransducerFiles
    from models.engines.base import Engine

__all__ = ["ASR_PACK", "TTS_PACK", "VAD_PACK", "Wren", "WrenSettings", "open_assistant"]

_LOG = logging.getLogger(__name__)

ASR_PACK, VAD_PACK, TTS_PACK = (PACKS[task] for task in ("asr", "vad", "tts"))

WARM_UP = "turn on the lights"


@dataclass(frozen=True, slots=True)
class WrenSettings:
    """What can be chosen so far."""

    home_file: Path | None = None
    """None: the small example home."""
    area: str | None = None
    """Area of the microphone; None takes the home file's `satellite_area`."""
    wake: WakeSettings = field(default_factory=WakeSettings)
    session: SessionSettings = field(default_factory=SessionSettings)
    endpoint: EndpointStyle = "quick"
    """How the end of a sentence is found: quick, patient or plain."""
    silence: SilenceSettings = field(default_factory=SilenceSettings)
    """Times of the plain style."""
    length_scale: float = 1.0
    """Pace of the voice: above 1 is slower."""
    keep_replies: bool = True
    """False: every session synthesises each reply anew, as one that was never said before. For measuring."""
    engines: Overrides = field(default_factory=Overrides)
    """What of the plan is set by hand."""
    recogniser: str | None = None
    """A pack's name, or a folder with a streaming transducer; None: Moonshine base. See `appliance.recognisers`."""
    denoise: bool = False
    """Whether noise is to be taken out for wake words. See `appliance.denoising`."""


def open_assistant(settings: WrenSettings) -> tuple[Assistant, str | None]:
    """Home and understanding alone, and the area of the microphone. Raises `HomeFileError`, `IntentError`."""
    from appliance.intent.assistant import Assistant
    from appliance.intent.memory_home import MemoryHome, default_home

    home: Home = default_home() if settings.home_file is None else MemoryHome.from_file(settings.home_file)
    assistant = Assistant(home)
    # Grammar and templates are compiled when they are first needed: not while somebody waits for an answer.
    assistant.preview(assistant.match(WARM_UP))
    return assistant, settings.area or home.view().satellite_area


class Wren:
    """Everything that sessions share: engines with their weights, the home, the voice and its cache."""

    def __init__(
        self, settings: WrenSettings, opener: EngineOpener, hearing: _Hearing | None, voice: PiperVoice
    ) -> None:
        self.settings = settings
        self.store = opener.store
        self.plan = opener.plan
        """What was to run each task."""
        self.opener = opener
        """What does, and why it differs where it does."""
        self._hearing = hearing
        self._voice = voice
        self._cache = ReplyCache()
        self.light_voice = find_flite() is not None
        """Whether there is another voice to fall back to."""
        self.light: LightRecogniser | None = None
        """Hears instead while this machine cannot keep up; None where it is not installed, or would be no lighter."""
        if hearing is not None and self._light_helps and forms(opener.store, LIGHT_ASR, PARTS["asr"]):
            self.light = LightRecogniser(lambda: opened_light(opener))
        self.strain = self.make_strain()
        """How far Wren steps down, for strain or heat."""
        self._biases = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bias")
        self.bias: BiasKeeper | None = None
        """What this home's people are likely to say; None where only the voice was opened."""
        if hearing is not None:
            from appliance.intent.lexicon import naming  # loads the grammar's library

            # Made when it is first asked for: a start must not share the processor with it.
            self.bias = BiasKeeper(hearing.assistant.view, self._biases.submit, naming=naming)

    @classmethod
    def open(
        cls,
        settings: WrenSettings,
        progress: Progress = silent,
        *,
        store: Store | None = None,
        voice_only: bool = False,
        fetch: bool = True,
    ) -> Wren:
        """Open all parts side by side, fetching (if allowed) and converting what is not there yet.

        Raises `ModelsError`, `HomeFileError`, `SpeechError`.
        """
        store = Store() if store is None else store
        with ThreadPoolExecutor(max_workers=4, thread_name_prefix="open") as pool:
            machine = pool.submit(this_machine, store)
            assistant = None if voice_only else pool.submit(open_assistant, settings)
            # One after the other: two downloads would fight for the line and for the terminal's last row.
            transducer = None if voice_only else _transducer(store, settings)
            moonshine = moonshine_pack(store, settings.recogniser)
            hearing_packs = (VAD_PACK,) if moonshine is None else (moonshine, VAD_PACK)
            wanted = (TTS_PACK,) if voice_only else (TTS_PACK, *hearing_packs)
            packs = {pack: store.ensure(pack, progress) if fetch else store.open(pack) for pack in wanted}
            made = [pool.submit(_converted, store, pack, progress) for pack in wanted if pack != VAD_PACK]
            artefacts = {artefact.manifest.pack: artefact for artefact in (future.result() for future in made)}
            # What the store holds decides with: the plan comes after conversion.
            given = {} if transducer is None else {"asr": graphs_of(transducer)}
            plan = current_plan(
                store,
                machine.result(),
                user=settings.engines,
                given=given,
                asr=moonshine or ASR_PACK,
                denoise=settings.denoise,
            )
            sound = plan.affinity.sound
            move_with((lambda thread_id: keep_thread_on(sound, thread_id)) if sound else None)
            opener = EngineOpener(store, plan, given=given)
            try:
                voice = pool.submit(_open_voice, opener, packs[TTS_PACK], artefacts[TTS_PACK], settings)
                if assistant is None:
                    return cls(settings, opener, None, voice.result())
                heard_by = None if moonshine is None else packs[moonshine]
                asr = pool.submit(_open_asr, opener, heard_by, transducer)
                vad = pool.submit(opener.open, "vad")
                home, area = assistant.result()
                hearing = _Hearing(asr.result(), vad.result()["vad"], VadTensors(), SharedAssistant(home), area)
                return cls(settings, opener, hearing, voice.result())
            except BaseException:
                # Whatever ended the start, Ctrl-C too: what is open is let go of, and what is being opened still.
                pool.shutdown()
                opener.close()
                raise

    def __enter__(self) -> Wren:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release weights and the phoneme program."""
        phonemiser = self._voice.phonemiser
        if isinstance(phonemiser, EspeakPhonemiser):
            phonemiser.close()
        self._biases.shutdown(wait=False, cancel_futures=True)
        if self.light is not None:
            self.light.close()
        self.opener.close()

    def wait_for_bias(self) -> None:
        """Until the phrases of the home are there (a second or so): for recordings, which must not depend on timing."""
        if self.bias is not None:
            self.bias.current()
            self._biases.submit(lambda: None).result()

    @property
    def degraded(self) -> tuple[str, ...]:
        """What works less well than the plan wanted, a sentence each."""
        trouble = None if self.light is None else self.light.trouble
        light = () if trouble is None else (trouble,)
        return (*self.opener.degraded, *self.strain.degraded, *light, *self.lost_sentences)

    @property
    def advice(self) -> tuple[str, ...]:
        """What could be installed to fall back on, a sentence each."""
        return tuple(
            f"Wren has no {(step.needs or '').replace('-', ' ')} to fall back on where too much is asked of this "
            f"machine; to install one: {step.to_get}"
            for step in self.strain.skipped
            if step.to_get is not None and (step.needs != LIGHT_RECOGNISER or self._light_helps)
        )

    @property
    def lost_sentences(self) -> tuple[str, ...]:
        """See `Assistant.lost_sentences`."""
        return () if self._hearing is None else self._hearing.assistant.lost_sentences

    def make_strain(self, settings: StrainSettings | None = None) -> Strain:
        """A ladder with the steps that can be taken here."""
        here = {LIGHT_VOICE: self.light_voice, LIGHT_RECOGNISER: self.light is not None}
        has = {name for name, is_here in here.items() if is_here}
        return Strain(has, slots=self.opener.plan.workers.recognitions, settings=settings, changed=self._relieve)

    def _relieve(self, relief: Relief) -> None:
        if self.light is not None:
            self.light.want(relief.light_recogniser)

    @property
    def _light_helps(self) -> bool:
        """Whether there is a recogniser that is known to be lighter than the planned one (not measured on a GPU)."""
        task = self.plan.tasks.get("asr")
        return task is not None and task.model == ASR_PACK and task.backend in {"ort-cpu", "numpy"}

    def heat(self, advice: HeatAdvice) -> None:
        """Do less, or again all, as the machine's heat asks for."""
        self.strain.floor("heat", None if advice.speculate else NO_GUESSES)
        self.opener.heat(advice)

    def synthesiser(self) -> PiperSynthesiser:
        """A session's own voice stream over the shared weights and, where replies are kept, the shared cache."""
        return PiperSynthesiser(self._voice, self._cache if self.settings.keep_replies else ReplyCache())

    def recogniser(self) -> MoonshineRecogniser | TransducerRecogniser:
        """A session's own hearing over the shared weights."""
        asr = self._need().asr
        return TransducerRecogniser(asr) if isinstance(asr, TransducerModel) else MoonshineRecogniser(asr)

    def voice_activity(self) -> VoiceActivity:
        """A session's own voice activity over the shared weights."""
        return VoiceActivity(self._need().vad, self._need().vad_tensors)

    @property
    def assistant(self) -> SharedAssistant:
        """What understands and acts; shared: the home is one."""
        return self._need().assistant

    @property
    def area(self) -> str | None:
        """Area of the microphone."""
        return self._need().area

    def session(
        self,
        name: str,
        runner: Runner,
        player: Player,
        emit: Listener,
        *,
        wake: bool = True,
        ears: Ears | None = None,
        alarm: Alarm | None = None,
    ) -> Session:
        """A new conversation; without `wake` it hears only after `Session.listen`.

        `ears` cleans its microphone's sound, `alarm` is what rings where it speaks.
        """
        hearing, meter = self._need(), runner.meter
        guard = None if meter is None else self.strain.guard(name, meter)
        vad = self.voice_activity()
        parts = SessionParts(
            wake=self.wake_listener(self.settings.wake, meter) if wake else None,
            vad=vad if meter is None else Metered("vad", vad, meter),
            recogniser=self._guarded_recogniser(guard),
            endpoint=make_endpoint(EndpointSettings(self.settings.endpoint, self.settings.silence)),
            thinker=hearing.assistant if guard is None else GuardedThinker(hearing.assistant, guard),
            synthesiser=self._guarded_synthesiser(guard),
            player=player,
            bias=self._bias,
            ears=ears,
            stop_listener=self._guarded_recogniser(guard),
            alarm=alarm,
            share=full_share if guard is None else lambda: self.strain.share(name),
        )
        return Session(name, parts, runner, emit, replace(self.settings.session, area=hearing.area))

    def wake_listener(self, settings: WakeSettings, meter: SessionMeter | None) -> WakeListener:
        """A session's own wake word detector, told of to its meter."""
        detector = WakeDetector(settings)
        return detector if meter is None else MeteredWake(detector, meter)

    def prime(self) -> None:
        """Have what is said in trouble ready before there is any; in the background, after the home's phrases."""
        self._biases.submit(self._prime)

    def _prime(self) -> None:
        try:
            for text in (BUSY_REPLY, *SENTENCES.values()):
                self.synthesiser().whole(text)
        except (ApplianceError, ModelsError) as error:
            _LOG.warning("what is said in trouble could not be made ready: %s", error)
        except Exception:  # noqa: BLE001 - nobody asks the executor what became of it
            _LOG.exception("what is said in trouble could not be made ready")

    def _guarded_recogniser(self, guard: Guard | None) -> Recogniser:
        if guard is None:
            return self.recogniser()
        return GuardedRecogniser(self.recogniser, guard, None if self.light is None else self.light.recogniser)

    def _guarded_synthesiser(self, guard: Guard | None) -> Synthesiser:
        if guard is None:
            return self.synthesiser()
        light = FliteSynthesiser(self._voice.config.rate_hz) if self.light_voice else None
        return GuardedSynthesiser(self.synthesiser, guard, kept=self._kept, light=light)

    def _kept(self, text: str) -> bool:
        """Whether the sound of a text need not be made."""
        key = ReplyKey(spoken(text), self._voice.name, self._voice.digest)
        return self.settings.keep_replies and key in self._cache

    def _bias(self) -> Bias | None:
        return None if self.bias is None else self.bias.current()

    def _need(self) -> _Hearing:
        if self._hearing is None:
            raise RuntimeError("only the voice was opened")
        return self._hearing


@dataclass(frozen=True, slots=True)
class _Hearing:
    """All but the voice: what hears and understands."""

    asr: MoonshineModel | TransducerModel
    vad: Engine
    vad_tensors: VadTensors
    assistant: SharedAssistant
    area: str | None


def _converted(store: Store, pack_id: str, progress: Progress) -> Artefact:
    """The pack's graphs; where converting fails (no ONNX Runtime), those that were converted by earlier tools."""
    from models.engines.rungs import converted_before

    try:
        return prepare(store, pack_id, progress)
    except ConversionError as error:
        _LOG.warning("%s; what was converted before is looked for", error)
        return converted_before(store, pack_id)


def _transducer(store: Store, settings: WrenSettings) -> TransducerFiles | None:
    asr = settings.engines.tasks.get("asr")
    return find_transducer(store, settings.recogniser, int8=asr is not None and asr.precision == "int8")


def _open_asr(
    opener: EngineOpener, pack: InstalledPack | None, transducer: TransducerFiles | None
) -> MoonshineModel | TransducerModel:
    if transducer is not None:
        return open_transducer(opener, transducer)
    assert pack is not None
    return open_moonshine(opener, pack)


def _open_voice(opener: EngineOpener, pack: InstalledPack, artefact: Artefact, settings: WrenSettings) -> PiperVoice:
    parameters = pack.pack.parameters_as(TtsParameters)
    config = VoiceConfig.load(pack.path(parameters.config))
    margins = artefact.manifest.parameters
    engines = opener.open("tts")
    chunks = opener.plan.tasks["tts"].chunks
    cut = ChunkPlan(int(margins["flow_margin_frames"]), int(margins["vocoder_margin_frames"]))
    if chunks is not None:
        cut = replace(cut, first=chunks.sizes[:-1], rest=chunks.sizes[-1])
    return PiperVoice(
        name=TTS_PACK,
        # Replies made before are kept by what made them: the voice, and the bits it was made with.
        digest=f"{pack.pack.digest} {opener.settled['tts'].precision}",
        frontend=engines["frontend"],
        flow=engines["flow"],
        vocoder=engines["vocoder"],
        config=config,
        phonemiser=EspeakPhonemiser(config.espeak_voice),
        hop=parameters.hop_samples,
        length_scale=settings.length_scale,
        plan=cut,
    )
