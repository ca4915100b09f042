"""`wren models`: the model packs on this machine, their licences, and whether they are whole."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.cli.common import model_store, print_json, warn
from models.errors import ModelsError

if TYPE_CHECKING:
    from models import InstalledPack, Progress, Store, StoreRow
    from models.quantize import QuantiseReport

__all__ = ["add", "run"]


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its options."""
    parser = subparsers.add_parser("models", help="list, fetch, verify or remove model packs")
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|fetch|verify|remove|quantize")
    listing = actions.add_parser("list", help="packs, their state and their licences")
    listing.add_argument("--json", action="store_true")
    for name, text in (
        ("fetch", "download, verify and convert packs (default: all that Wren needs)"),
        ("verify", "check every byte of what is installed"),
        ("remove", "delete packs and what was made from them"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("pack", nargs="+" if name == "remove" else "*", metavar="PACK")
        if name == "fetch":
            action.add_argument(
                "--quick", action="store_true", help="only what is missing: what is used is verified when it is opened"
            )
            action.add_argument(
                "--consent", action="store_true", help="take unverified packs as they come, and pin what was seen"
            )
        if name == "remove":
            action.add_argument("--forget", action="store_true", help="also forget what was seen of an unverified pack")
    quantising = actions.add_parser("quantize", help="try fewer bits, measure them here, keep what is as accurate")
    quantising.add_argument("pack", nargs="*", metavar="PACK", help="(default: all that can be quantised)")
    quantising.add_argument("--report", action="store_true", help="print what was found before; try nothing")
    quantising.add_argument(
        "--speech", type=Path, metavar="DIR", help="recordings to judge by (commands/, negatives/, each a manifest.tsv)"
    )
    quantising.add_argument("--json", action="store_true")


def run(arguments: argparse.Namespace) -> int:
    """Dispatch."""
    actions = {"list": _list, "fetch": _fetch, "verify": _verify, "remove": _remove, "quantize": _quantize}
    return actions[arguments.action](arguments)


def _list(arguments: argparse.Namespace) -> int:
    store = model_store()
    rows = store.list()
    if arguments.json:
        print_json(
            [
                {
                    "id": row.pack.id,
                    "task": row.pack.task,
                    "title": row.pack.title,
                    "languages": list(row.pack.languages),
                    "licence": row.pack.licence,
                    "caveats": list(row.pack.caveats),
                    "status": row.status,
                    "used": row.pack.used,
                    "folder": None if row.folder is None else str(row.folder),
                    "bytes": row.bytes_on_disk,
                }
                for row in rows
            ]
        )
        return 0
    print(f"Store: {store.root}")
    for row in rows:
        size = f"{row.bytes_on_disk / 1e6:.0f} MB" if row.bytes_on_disk else "-"
        print(
            f"{row.pack.id:<23} {row.pack.task:<5} {row.status:<10} {size:>7}  {row.pack.licence:<11} {row.pack.title}"
        )
        for caveat in (*row.pack.caveats, *_standing(row)):
            print(f"{'':<49}{caveat}")
    return 0


def _standing(row: StoreRow) -> list[str]:
    """What else a user should know of a pack that is not among those Wren runs on."""
    lines = []
    if row.status == "unverified":
        lines.append("Unverified: not fetched when it was listed, no checksum known; needs `fetch --consent`.")
    if not row.pack.used:
        lines.append("Not used yet: Wren has no engine for it.")
    return lines


def _fetch(arguments: argparse.Namespace) -> int:
    from models import TerminalProgress
    from models.convert import needs_conversion, prepare

    store, progress = model_store(), TerminalProgress()
    there = {row.pack.id for row in store.list() if row.status == "installed"} if arguments.quick else set()
    for pack_id in arguments.pack or _fetchable(store):
        if store.catalogue.get(pack_id).is_library:
            print(f"{pack_id}: comes with Wren, nothing to fetch")
            continue
        if pack_id in there and (not needs_conversion(pack_id) or _converted(store, pack_id)):
            continue
        pack = _ensure(store, pack_id, progress, arguments.consent)
        if needs_conversion(pack_id):
            prepare(store, pack_id, progress, verify=True)
        progress.finish()
        later = "" if pack.pack.used else "; not used yet"
        print(f"{pack_id}: ready ({pack.pack.licence}){later}")
    return 0


def _converted(store: Store, pack_id: str) -> bool:
    from models.convert import open_artefact

    try:
        open_artefact(store, pack_id)
    except ModelsError:
        return False
    return True


def _ensure(store: Store, pack_id: str, progress: Progress, consent: bool) -> InstalledPack:
    """The pack; where its checksums were never established, a person at a terminal is asked."""
    from models.errors import ConsentNeededError

    try:
        return store.ensure(pack_id, progress, consent=consent)
    except ConsentNeededError as error:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        for source in store.catalogue.get(pack_id).sources:
            warn(f"{pack_id} would come from {source}")
        warn(str(error))
        print("Fetch it and pin what comes? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise
        return store.ensure(pack_id, progress, consent=True)


def _verify(arguments: argparse.Namespace) -> int:
    from models import ModelsError
    from models.convert import needs_conversion, open_artefact

    store = model_store()
    bad = 0
    for pack_id in arguments.pack or _fetchable(store):
        if store.catalogue.get(pack_id).is_library:
            print(f"{pack_id}: comes with Wren")
            continue
        try:
            store.open(pack_id)
            if needs_conversion(pack_id):
                open_artefact(store, pack_id).verify()
        except ModelsError as error:
            bad += 1
            warn(str(error))
        else:
            print(f"{pack_id}: whole")
    return 1 if bad else 0


def _remove(arguments: argparse.Namespace) -> int:
    store = model_store()
    for pack_id in arguments.pack:
        store.remove(pack_id, forget=arguments.forget)
        print(f"{pack_id}: removed")
    return 0


def _quantize(arguments: argparse.Namespace) -> int:
    from models import TerminalProgress
    from models.convert import needs_conversion, prepare
    from models.quantize import RECOGNISERS, open_quantised, quantisable, quantise

    store = model_store()
    packs = arguments.pack or quantisable()
    if arguments.report:
        reports = [report for pack_id in packs for report in open_quantised(store, pack_id)[1]]
    else:
        from appliance.evaluation import evaluations, load_material

        progress = TerminalProgress()
        # The voice and the recogniser calibrate and judge, whichever pack is asked for.
        for pack_id in dict.fromkeys((*packs, *quantisable())):
            store.ensure(pack_id, progress)
            if needs_conversion(pack_id):
                prepare(store, pack_id, progress)
        material, reports = load_material(arguments.speech), []
        asked = [pack_id for pack_id in packs if pack_id in RECOGNISERS] or [RECOGNISERS[0]]
        judges = {asr: evaluations(store, arguments.speech, asr) for asr in asked}
        for pack_id in packs:
            reports += quantise(store, pack_id, judges.get(pack_id, judges[asked[0]]), material, progress)
        progress.finish()
    for report in reports:
        if arguments.json:
            print_json(report.model_dump(mode="json"))
        else:
            print("\n".join(_report_lines(report)))
    return 0


def _report_lines(report: QuantiseReport) -> list[str]:
    """A report for a person: a line a variant, a line a graph of it, the choice."""
    lines = [
        f"{report.pack}, {report.group} ({report.machine})",
        f"  {report.fp32.measure}, {report.fp32.items} items: FP32 {report.fp32.value:.2%}",
    ]
    for variant in report.variants:
        score = "not run" if variant.score is None else f"{variant.score.value:.2%}"
        speed = f"{variant.speed_up:.2f} x FP32" if variant.parts else "-"
        verdict = "passed" if variant.passed else f"refused ({variant.why})"
        lines.append(f"  {variant.variant:<17} {score:>8}  {speed:>11}  {verdict}")
        lines += [
            f"    {part.part:<15} {part.bytes / 1e6:>6.1f} MB  {part.cpu_ms:>7.1f} ms  {part.snr_db:>6.1f} dB"
            f"  {len(part.kept_float)} of {part.sites} in float"
            for part in variant.parts
        ]
    return lines + [f"  {target}: {report.chosen[target]}: {why}" for target, why in report.why.items()]


def _fetchable(store: Store) -> list[str]:
    """What Wren always runs on, and what the settings ask for besides (a transducer has to be asked for by name)."""
    from appliance.recognisers import moonshine_pack
    from appliance.settings import load_settings

    settings = load_settings().settings
    denoiser = None if settings.audio.denoise == "off" else settings.audio.denoise
    needed = [pack.id for pack in store.catalogue.pack if not pack.is_library]
    chosen = (moonshine_pack(store, settings.models.recogniser), denoiser)
    return [*needed, *(pack for pack in chosen if pack is not None and pack not in needed)]
