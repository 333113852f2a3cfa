"""Who of a cluster asks for its token, as each part says itself: for `boki status`. Pure.

A part that does not say (a bookie of Apache's, a process of an earlier version) counts as one that asks for none.
"""

from __future__ import annotations

from boki_cli.facts.cluster_facts import ClusterStatus, Part
from boki_common.exposure import reached_by_others


def asks(part: Part) -> bool:
    """Whether who connects to it has to show the token. One that refused us asked."""
    return bool(part.status.get("asks_for_token"))


def is_exposed(part: Part) -> bool:
    """Whether other machines reach it, as far as its address says; a name may mean this machine alone."""
    host, separator, _ = part.address.rpartition(":")
    if not separator or part.address.startswith("unix://"):
        return False
    return reached_by_others(host.removeprefix("[").removesuffix("]"), ())


def open_parts_of(found: ClusterStatus) -> list[Part]:
    """Parts that answer and ask for no token, where others do."""
    answering = [part for part in found.parts if part.up]
    return [part for part in answering if not asks(part)] if any(map(asks, answering)) else []


def access_lines(found: ClusterStatus) -> list[str]:
    """What to say of it, the whole cluster first; then a line for each part that is open to other machines."""
    answering = [part for part in found.parts if part.up]
    asking = [part for part in answering if asks(part)]
    if not answering:
        return []
    if len(asking) == len(answering):
        return ["cluster token: everybody asks for it"]
    some = [f"{part.role} {part.address} asks for no cluster token" for part in open_parts_of(found)]
    exposed = [
        f"insecure: other machines reach {part.role} {part.address}, and it asks for no cluster token"
        for part in answering
        if not asks(part) and is_exposed(part)
    ]
    return [*some, *exposed] if some else ["cluster token: nobody asks for one", *exposed]
