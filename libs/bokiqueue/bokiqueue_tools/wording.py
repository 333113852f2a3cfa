"""Queues as people read them on a terminal, and as JSON. Pure.

Names, keys and texts of others never move a cursor or end a line: unprintable characters are shown as escapes.
"""

from __future__ import annotations

from typing import Any, Final

from boki_gateway.pages.texts import preview, printable
from bokiqueue.manage.inspection import Peeked, Stats
from bokiqueue.model.events import Config, Id, Source
from bokiqueue.model.items import GROUP

PREVIEW: Final = 100
ERROR: Final = 200


def seconds(ms: int) -> str:
    """Return a time span as text: 0.2 s, 75 s, 3.5 h."""
    return (
        f"{ms / 1000:.1f} s"
        if ms < 100_000
        else f"{ms / 60_000:.0f} min"
        if ms < 7_200_000
        else f"{ms / 3_600_000:.1f} h"
    )


def per_second(rate: float | None) -> str:
    """Return a rate as text: 0.2/s, 1,200/s; "not kept" for None."""
    return "not kept" if rate is None else f"{rate:.1f}/s" if rate < 10 else f"{rate:,.0f}/s"


def config_facts(config: Config) -> dict[str, Any]:
    """Return a queue's settings for JSON."""
    return {
        "queue": config.queue,
        "mode": config.mode,
        "shards": config.shards,
        "groups": sorted(config.groups),
        "dead_letter": config.dead_letter,
        "paused": config.paused,
        "key_rates": dict(config.key_rates),
    }


def config_line(config: Config) -> str:
    """Return a queue on one line."""
    groups = ", ".join(printable(group) for group in sorted(config.groups))
    words = [printable(config.queue), f"{config.shards} shards", groups or "popped"]
    return "  ".join([*words, *(["paused"] if config.paused else [])])


def stats_facts(stats: Stats) -> dict[str, Any]:
    """Return the statistics of a queue for JSON."""
    return {
        "queue": stats.queue,
        "group": stats.group,
        "mode": stats.mode,
        "paused": stats.paused,
        "depth": stats.depth,
        "in_flight": stats.in_flight,
        "delayed": stats.delayed,
        "unopened": stats.unopened,
        "age_ms": stats.age_ms,
        "consumed": stats.consumed,
        "members": [one._asdict() for one in stats.members],
        "shards": [one._asdict() for one in stats.shards],
    }


def stats_lines(stats: Stats) -> list[str]:
    """Return the statistics of a queue as lines."""
    whole = f"{stats.depth} unfinished, {stats.in_flight} in flight, {stats.delayed} delayed, oldest {seconds(stats.age_ms)}"
    if stats.unopened:
        whole += f", {stats.unopened} records that this program cannot open"
    lines = [f"{printable(stats.queue)}  {whole}{'  paused' if stats.paused else ''}"]
    if stats.mode == "consume":
        lines.append(f"    {consumers_line(stats)}")
    for one in stats.shards:
        owner = printable(one.owner) or "no owner"
        lines.append(f"    shard {one.shard}  {one.depth} unfinished, {one.in_flight} in flight  {owner}")
    return lines


def consumers_line(stats: Stats) -> str:
    """Return the line that says which members consume, or since when none does."""
    if stats.alive:
        return f"consumed by {', '.join(printable(name) for name in stats.alive)}"
    if stats.seen_ms is None:
        return f"no consumers: no member of group {printable(stats.group)!r} is known"
    last = max(stats.members, key=lambda one: one.seen_ms)
    ago = seconds(max(0, stats.at_ms - last.seen_ms))
    seen = "left, and was seen last" if last.leaves else "was seen last,"
    return f"no consumers: {printable(last.member)} {seen} {ago} ago"


def peeked_facts(one: Peeked) -> dict[str, Any]:
    """Return a message for JSON."""
    source = None
    if one.source is not None:
        source = {name: getattr(one.source, name) for name in one.source.__struct_fields__}
    return one._asdict() | {"source": source}


def error_text(source: Source) -> str:
    """Return the error of a dead letter's last attempt on one line, "" if it raised none."""
    text = printable(source.error)
    return text if len(text) <= ERROR else text[: ERROR - 1] + "…"


def peeked_line(one: Peeked) -> str:
    """Return a message on one line."""
    words = [str(Id(one.seqnum, one.number)), f"shard {one.shard}", one.state]
    if one.attempts:
        words.append(f"attempt {one.attempts}")
    if one.priority:
        words.append(f"priority {one.priority}")
    if one.key is not None:
        words.append(f"key {printable(one.key)}")
    if one.source is not None:
        error = f": {error_text(one.source)}" if one.source.error else ""
        group = f" for {printable(one.source.group)}" if one.source.group not in ("", GROUP) else ""
        words.append(f"from {printable(one.source.queue)}{group}: {printable(one.source.reason)}{error}")
    return "  ".join([*words, preview(one.body, PREVIEW)])
