"""Queues in the words that people read on a terminal, and as JSON has them. Pure.

What others wrote (names, keys, texts) never moves a cursor or ends a line: what cannot be printed is shown as an escape.
"""

from __future__ import annotations

from typing import Any, Final

from boki_gateway.pages.texts import preview, printable
from bokiqueue.events import Config, Id, Source
from bokiqueue.inspection import Peeked, Stats

PREVIEW: Final = 100
ERROR: Final = 200


def seconds(ms: int) -> str:
    """A time span: 0.2 s, 75 s, 3.5 h."""
    return (
        f"{ms / 1000:.1f} s"
        if ms < 100_000
        else f"{ms / 60_000:.0f} min"
        if ms < 7_200_000
        else f"{ms / 3_600_000:.1f} h"
    )


def per_second(rate: float | None) -> str:
    """A rate: 0.2/s, 1,200/s; nobody may know."""
    return "not kept" if rate is None else f"{rate:.1f}/s" if rate < 10 else f"{rate:,.0f}/s"


def config_facts(config: Config) -> dict[str, Any]:
    """A queue's settings as JSON has them."""
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
    """A queue on one line."""
    groups = ", ".join(printable(group) for group in sorted(config.groups))
    words = [printable(config.queue), f"{config.shards} shards", groups or "popped"]
    return "  ".join([*words, *(["paused"] if config.paused else [])])


def stats_facts(stats: Stats) -> dict[str, Any]:
    """How much waits, as JSON has it."""
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
    """How much waits, for people."""
    whole = (
        f"{stats.depth} not done, {stats.in_flight} in flight, {stats.delayed} delayed, oldest {seconds(stats.age_ms)}"
    )
    if stats.unopened:
        whole += f", {stats.unopened} records that this program cannot open"
    lines = [f"{printable(stats.queue)}  {whole}{'  paused' if stats.paused else ''}"]
    if stats.mode == "consume":
        lines.append(f"    {consumers_line(stats)}")
    for one in stats.shards:
        owner = printable(one.owner) or "nobody"
        lines.append(f"    shard {one.shard}  {one.depth} not done, {one.in_flight} in flight  {owner}")
    return lines


def consumers_line(stats: Stats) -> str:
    """Who consumes, or since when nobody does."""
    if stats.alive:
        return f"consumed by {', '.join(printable(name) for name in stats.alive)}"
    if stats.seen_ms is None:
        return f"nobody consumes: no member of group {printable(stats.group)!r} is known"
    last = max(stats.members, key=lambda one: one.seen_ms)
    ago = seconds(max(0, stats.at_ms - last.seen_ms))
    seen = "left, and was seen last" if last.leaves else "was seen last,"
    return f"nobody consumes: {printable(last.member)} {seen} {ago} ago"


def peeked_facts(one: Peeked) -> dict[str, Any]:
    """A message as JSON has it."""
    source = None
    if one.source is not None:
        source = {name: getattr(one.source, name) for name in one.source.__struct_fields__}
    return one._asdict() | {"source": source}


def error_text(source: Source) -> str:
    """The error of a dead letter's last attempt on one line, "" where it raised none."""
    text = printable(source.error)
    return text if len(text) <= ERROR else text[: ERROR - 1] + "…"


def peeked_line(one: Peeked) -> str:
    """A message on one line."""
    words = [str(Id(one.seqnum, one.number)), f"shard {one.shard}", one.state]
    if one.attempts:
        words.append(f"attempt {one.attempts}")
    if one.priority:
        words.append(f"priority {one.priority}")
    if one.key is not None:
        words.append(f"key {printable(one.key)}")
    if one.source is not None:
        error = f": {error_text(one.source)}" if one.source.error else ""
        words.append(f"from {printable(one.source.queue)}: {printable(one.source.reason)}{error}")
    return "  ".join([*words, preview(one.body, PREVIEW)])
