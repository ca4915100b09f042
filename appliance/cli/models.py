"""`wren models`: the model packs on this machine, their licences, and whether they are whole."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from appliance.cli.common import print_json, warn

if TYPE_CHECKING:
    from models import Store

__all__ = ["add", "run"]


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its options."""
    parser = subparsers.add_parser("models", help="list, fetch, verify or remove model packs")
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|fetch|verify|remove")
    listing = actions.add_parser("list", help="packs, their state and their licences")
    listing.add_argument("--json", action="store_true")
    for name, text in (
        ("fetch", "download, verify and convert packs (default: all that Wren needs)"),
        ("verify", "check every byte of what is installed"),
        ("remove", "delete packs and what was made from them"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("pack", nargs="+" if name == "remove" else "*", metavar="PACK")


def run(arguments: argparse.Namespace) -> int:
    """Dispatch."""
    return {"list": _list, "fetch": _fetch, "verify": _verify, "remove": _remove}[arguments.action](arguments)


def _list(arguments: argparse.Namespace) -> int:
    from models import Store

    store = Store()
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
            f"{row.pack.id:<20} {row.pack.task:<5} {row.status:<10} {size:>7}  {row.pack.licence:<11} {row.pack.title}"
        )
        for caveat in row.pack.caveats:
            print(f"{'':<46}{caveat}")
    return 0


def _fetch(arguments: argparse.Namespace) -> int:
    from models import Store, TerminalProgress
    from models.convert import needs_conversion, prepare

    store, progress = Store(), TerminalProgress()
    for pack_id in arguments.pack or _fetchable(store):
        if store.catalogue.get(pack_id).is_library:
            print(f"{pack_id}: comes with Wren, nothing to fetch")
            continue
        pack = store.ensure(pack_id, progress)
        if needs_conversion(pack_id):
            prepare(store, pack_id, progress, verify=True)
        progress.finish()
        print(f"{pack_id}: ready ({pack.pack.licence})")
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    from models import ModelsError, Store
    from models.convert import needs_conversion, open_artefact

    store = Store()
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
    from models import Store

    store = Store()
    for pack_id in arguments.pack:
        store.remove(pack_id)
        print(f"{pack_id}: removed")
    return 0


def _fetchable(store: Store) -> list[str]:
    return [pack.id for pack in store.catalogue.pack if not pack.is_library]
