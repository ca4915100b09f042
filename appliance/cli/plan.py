"""`wren plan`: which engine runs each task here, at which precision, and why."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from appliance.cli.common import model_store, print_json, warn
from appliance.cli.probe import add_root_option, machine_from

if TYPE_CHECKING:
    from hw.plan import Choice, Plan, Timings
    from hw.power import PowerAdvice
    from hw.probe import Machine
    from models import Store

__all__ = ["add", "run"]


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its options."""
    parser = subparsers.add_parser("plan", help="say which engine runs each task here, and why")
    add_root_option(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument(
        "--gate",
        choices=("passed", "failed"),
        help="as if INT8 had passed or failed the models' accuracy gates (default: as it did)",
    )
    parser.add_argument("--explain", action="store_true", help="all reasons, candidates and what was passed over")
    parser.add_argument("--remeasure", action="store_true", help="measure anew, whatever was measured before")


def run(arguments: argparse.Namespace) -> int:
    """Print the plan; measures this machine first if that was never done. Another one is planned by rule."""
    from appliance.measuring import PACKS
    from appliance.overrides import engine_overrides
    from appliance.planning import plan_from
    from appliance.recognisers import given_graphs, moonshine_pack
    from appliance.settings import load_settings

    machine, store = machine_from(arguments), model_store()
    gate = None if arguments.gate is None else arguments.gate == "passed"
    timings: Timings = {}
    asr = PACKS["asr"]
    user, given, denoise = None, None, False
    if arguments.root is None:
        # What is set here is set for this machine.
        settings = load_settings().settings
        user = engine_overrides(settings.engines)
        denoise = settings.audio.denoise != "off"
        given = given_graphs(store, settings.models.recogniser, user)
        asr = moonshine_pack(store, settings.models.recogniser) or asr
        timings = _timings(store, machine, asr, anew=arguments.remeasure)
    plan = plan_from(store, machine, timings, user=user, given=given, asr=asr, gate=gate, denoise=denoise)
    advice = _advice(arguments, machine)
    if arguments.json:
        print_json({**plan.to_dict(), "advice": [{"text": a.text, "command": a.command} for a in advice]})
    else:
        _print(plan, advice, explain=arguments.explain)
    return 0


def _timings(store: Store, machine: Machine, asr: str, *, anew: bool) -> Timings:
    from appliance.errors import ApplianceError
    from appliance.planning import kept_timings, measure
    from models import ModelsError, TerminalProgress

    if not anew and (kept := kept_timings(store, machine, asr)) is not None:
        return kept
    progress = TerminalProgress()
    try:
        return measure(store, machine, progress, asr=asr)
    except (ApplianceError, ModelsError) as error:
        progress.finish()
        warn(f"not measured: {error}")
        return {}
    finally:
        progress.finish()


def _advice(arguments: argparse.Namespace, machine: Machine) -> tuple[PowerAdvice, ...]:
    from hw.power import advise_power, read_power
    from hw.probe import Root

    return advise_power(machine, read_power(Root() if arguments.root is None else Root(arguments.root)))


def _print(plan: Plan, advice: tuple[PowerAdvice, ...], *, explain: bool) -> None:
    width = max(5, *map(len, plan.tasks))
    for choice in plan.tasks.values():
        print(f"{choice.task:<{width}} {_summary(choice)}")
        if explain:
            print(f"      {choice.model}")
            _explain(choice)
    workers = plan.workers
    how = "measured" if workers.measured else "by rule"
    print(f"recognitions at once: {workers.recognitions}; {how}" + (f" ({workers.reason})" if explain else ""))
    print(f"cores: {plan.affinity.reason}")
    memory = plan.memory
    budget = "of an unknown amount" if memory.budget_mb is None else f"of {memory.budget_mb} MB that may be taken"
    print(f"memory: about {memory.planned_mb} MB {budget}")
    for row in advice if explain else ():
        print(f"power: {row.text}" + (f" ({row.command})" if row.command else ""))
    for text in plan.warnings:
        warn(text)


def _summary(choice: Choice) -> str:
    how = " ".join(part for part in (choice.backend, choice.precision, choice.scheme) if part)
    threads = f"{choice.threads} thread{'s' if choice.threads > 1 else ''}"
    if choice.ms is None:
        return f"{how}, {threads}; by rule"
    times = f"{choice.times_faster_than_worst:.1f} times the slowest's speed"
    return f"{how}, {threads}; measured: {choice.ms:.0f} ms, {times}"


def _explain(choice: Choice) -> None:
    print(f"      {choice.reason}")
    for timing in sorted(choice.candidates, key=lambda timing: timing.ms):
        print(f"      measured {timing.ms:8.1f} ms  {timing.candidate}")
    if choice.chunks is not None:
        print(f"      chunks: {', '.join(map(str, choice.chunks.sizes))} {choice.chunks.unit}")
    if choice.fallback is not None:
        fallback = choice.fallback
        how = " ".join(part for part in (fallback.backend, fallback.precision, fallback.scheme) if part)
        print(f"      if that fails: {how}")
    for text in choice.passed_over:
        print(f"      passed over {text}")
