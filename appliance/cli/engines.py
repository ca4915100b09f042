"""`wren engines`: TensorRT engines of this machine: build, list, verify, prune."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from appliance.cli.common import model_store, print_json
from appliance.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from models import Progress, Store
    from models.engines.quarantine import Quarantine
    from models.engines.tensorrt.cache import EngineCache, EngineRow
    from models.engines.tensorrt.provide import EngineSpec, Provider

__all__ = ["add", "run"]


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its options."""
    parser = subparsers.add_parser("engines", help="build, list, verify or prune TensorRT engines")
    actions = parser.add_subparsers(dest="action", required=True, metavar="build|list|verify|prune")
    building = actions.add_parser("build", help="build what is not built yet, check it and keep it (takes minutes)")
    building.add_argument("pack", nargs="*", metavar="PACK", help="(default: all that TensorRT runs)")
    building.add_argument("--precision", choices=("fp32", "fp16", "int8-trt"), help="(default: as quantising chose)")
    building.add_argument("--again", action="store_true", help="also what was given up before")
    building.add_argument("--workspace-mib", type=int, default=512, metavar="N", help="memory a kernel may use (512)")
    building.add_argument("--timeout-s", type=float, default=3600.0, metavar="S", help="end a build after this (3600)")
    building.add_argument(
        "--version-compatible", action="store_true", help="engines that later minor versions load too; slower"
    )
    listing = actions.add_parser("list", help="what is built, and what could not be")
    verifying = actions.add_parser("verify", help="check every byte of what is built")
    pruning = actions.add_parser("prune", help="remove what is damaged or was left by a build that was cut")
    which = pruning.add_mutually_exclusive_group()
    which.add_argument("--others", action="store_true", help="also what does not serve on this machine as it is now")
    which.add_argument("--all", action="store_true", help="everything")
    which.add_argument("--faults", action="store_true", help="only the list of engines that failed: try them again")
    for action in (building, listing, verifying, pruning):
        action.add_argument("--json", action="store_true")


def run(arguments: argparse.Namespace) -> int:
    """Dispatch."""
    return {"build": _build, "list": _list, "verify": _verify, "prune": _prune}[arguments.action](arguments)


def _list(arguments: argparse.Namespace) -> int:
    cache = _cache()
    _show(cache.rows(), arguments)
    if not arguments.json:
        print(f"in {cache.folder}")
        for entry in _quarantine().entries():
            print(f"put away: {entry.task} on {entry.rung}: {entry.kind}, {entry.count} times ({entry.reason})")
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    rows = _cache().verify()
    _show(rows, arguments)
    return 1 if any(row.status == "damaged" for row in rows) else 0


def _prune(arguments: argparse.Namespace) -> int:
    if arguments.faults:
        removed = _quarantine().clear()
        if arguments.json:
            print_json({"faults": removed})
        else:
            print(f"{removed} engines that failed will be tried again at the next start")
        return 0
    cache = _cache()
    keep: set[str] | None = set() if arguments.all else None
    if arguments.others:
        from models.engines.tensorrt.provide import provider_here

        store = model_store()
        provider = provider_here(store)
        keys = [provider.key(spec) for spec, _ in _specs(store, arguments)]
        serving = [found.manifest.key for key in keys if (found := cache.open_like(key)) is not None]
        keep = {key.digest for key in (*keys, *serving)}
    _show(cache.prune(keep), arguments, empty="nothing to remove")
    return 0


def _build(arguments: argparse.Namespace) -> int:
    """One line an engine; what cannot be built does not keep the others from it."""
    from models import TerminalProgress
    from models.engines.tensorrt.builder import BuildLimits
    from models.engines.tensorrt.provide import provider_here
    from models.errors import ModelsError

    store = model_store()
    _check_packs(arguments.pack)
    provider, progress = provider_here(store), TerminalProgress()
    provider.limits = BuildLimits(timeout_s=arguments.timeout_s)
    failed = 0
    for spec, names in _specs(store, arguments):
        if arguments.again:
            provider.cache.forget_failure(provider.key(spec))
        start = time.monotonic()
        try:
            row = {"name": spec.name, **_made(store, provider, spec, names, progress)}
        except ModelsError as error:
            failed += 1
            row = {"name": spec.name, "code": error.code, "error": str(error)}
        progress.finish()
        row["seconds"] = round(time.monotonic() - start, 1)
        if arguments.json:
            print_json(row)
        elif "error" in row:
            print(f"{spec.name}: not built: {row['error']}")
        else:
            how = "was there" if row["cached"] else f"built in {row['seconds']:.0f} s"
            print(f"{spec.name}: {how}, {row['bytes'] / 1e6:.1f} MB, {row['checks']}")
    return 1 if failed else 0


def _made(
    store: Store, provider: Provider, spec: EngineSpec, names: tuple[str, str, str], progress: Progress
) -> dict[str, Any]:
    """The engine made sure of, and what there is to say about it."""
    import dataclasses

    from appliance.evaluation import words_judge
    from models.engines.tensorrt.sources import golden

    cached = provider.cached(spec)
    if cached is None:
        wanted = golden(store, *names)
        engine = provider.get(spec, dataclasses.replace(wanted, extra=words_judge(store, *names[:2])), progress)
    else:
        engine = cached
    engine.close()
    found = provider.cache.open(provider.key(spec))
    manifest = None if found is None else found.manifest
    return {
        "cached": cached is not None,
        "bytes": 0 if manifest is None else manifest.size,
        "checks": {} if manifest is None else manifest.checks,
    }


def _specs(store: Store, arguments: argparse.Namespace) -> Iterator[tuple[EngineSpec, tuple[str, str, str]]]:
    """Every graph asked for, with its pack, part and precision."""
    from models.engines.tensorrt.key import BuildSettings
    from models.engines.tensorrt.sources import PARTS, precision_of, spec_for

    settings = BuildSettings(
        workspace_mib=getattr(arguments, "workspace_mib", BuildSettings().workspace_mib),
        version_compatible=getattr(arguments, "version_compatible", False),
    )
    for pack_id in getattr(arguments, "pack", None) or PARTS:
        for part in PARTS[pack_id]:
            precision = getattr(arguments, "precision", None) or precision_of(store, pack_id, part)
            yield spec_for(store, pack_id, part, precision, settings), (pack_id, part, precision)


def _check_packs(packs: Sequence[str]) -> None:
    from models.engines.tensorrt.sources import PARTS

    for pack_id in packs:
        if pack_id not in PARTS:
            raise UsageError(f"{pack_id} does not run on TensorRT; these do: {', '.join(PARTS)}")


def _cache() -> EngineCache:
    from models.engines.tensorrt.cache import EngineCache
    from models.engines.tensorrt.provide import FOLDER

    return EngineCache(model_store().root / FOLDER)


def _quarantine() -> Quarantine:
    from models.engines.rungs import quarantine_of

    return quarantine_of(model_store())


def _show(rows: Sequence[EngineRow], arguments: argparse.Namespace, empty: str = "no engine has been built") -> None:
    if arguments.json:
        print_json(
            [
                {
                    "digest": row.digest,
                    "name": row.name,
                    "status": row.status,
                    "bytes": row.bytes,
                    "used_at": row.used_at,
                    "detail": row.detail,
                }
                for row in rows
            ]
        )
        return
    for row in rows:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.used_at))
        print(f"{row.digest:<23} {row.status:<9} {row.bytes / 1e6:>8.1f} MB  {used}  {row.name}  {row.detail}".rstrip())
    if not rows:
        print(empty)
