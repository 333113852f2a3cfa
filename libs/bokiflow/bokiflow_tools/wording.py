"""The words for workflows on a terminal, and their members in JSON. Pure.

Ids, names and values come from users and are not trusted: characters that cannot be printed, such as those that move the cursor or end a
line, are shown as escapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from boki_gateway.pages.texts import preview, printable, span_text
from bokiflow.history.instance_state import InstanceState, LockWait, status_of
from bokiflow.model.delivery_order import start_ms
from bokiflow.model.flow_events import Started
from bokiflow.model.outcomes import Failure, Outcome, beside
from bokiflow.model.stacks import users_stack, with_users_stack
from bokiflow_tools.timeline import MARKS, Life, Span

IDLE_CLAIMS: Final = 3
"""Takeovers without a record after which `show` reports them."""
LEAST_ROOM: Final = 40
"""Characters of an error that a list shows even on a narrow terminal."""
UNENDED: Final = (
    "A step is recorded when it ends: steps that run now, or were interrupted, are not shown. `boki flow replay` says which steps, "
    "signals and timers the code waits for."
)
"""The note below the steps of a workflow that has not ended."""
OPEN_TIMER: Final = "open, unless it was cancelled"
"""The duration of a timer that has not fired. That the code left an `asyncio.timeout`, or cancelled a sleep, is not in the log."""
REASON: Final = 200
"""Characters of an error that a list shows at most."""
OPEN_ROWS: Final = 10
"""Open timers, children and steps that `show` prints at most."""
STACK_LINES: Final = 400
"""Lines of stacks that `show` prints at most, of an error with its causes and grouped errors."""
INCARNATION: Final = 8
"""Characters of an incarnation that are shown: enough to tell two apart."""


def outcome_facts(outcome: Outcome | None) -> dict[str, Any]:
    """Return the member `result` or `error` for JSON; no member without an outcome."""
    if outcome is None:
        return {}
    if outcome.error is not None:
        return {"error": error_facts(outcome.error)}
    return {"result": outcome.value}


def error_facts(error: Failure) -> dict[str, Any]:
    """Return the members of an error for JSON: its class and message and, where it has them, its stack, its cause and grouped errors."""
    facts: dict[str, Any] = {"type": error.type, "message": error.message}
    facts |= {"stack": error.stack} if error.stack else {}
    facts |= {"cause": error_facts(error.cause)} if error.cause is not None else {}
    return facts | ({"errors": [error_facts(one) for one in error.errors]} if error.errors else {})


def outcome_text(outcome: Outcome | None) -> str:
    """Return an outcome on one line; "" without one."""
    if outcome is None:
        return ""
    if outcome.error is not None:
        return _error_text(outcome.error) + printable(beside(outcome.error))
    return preview(outcome.value)


def _error_text(error: Failure) -> str:
    return f"{printable(error.type.rpartition(':')[2])}: {printable(error.message)[:REASON]}"


def errors_below(error: Failure) -> list[tuple[str, Failure]]:
    """Return the errors of a group and the cause of an error, each with a heading for people."""
    count = len(error.errors)
    found = [(f"error {number} of {count}: {_error_text(one)}", one) for number, one in enumerate(error.errors, 1)]
    return [*found, *([(f"cause: {_error_text(error.cause)}", error.cause)] if error.cause is not None else [])]


def error_lines(error: Failure, shown: Callable[[str], list[str]]) -> list[str]:
    """Return the stack of an error, and below it the errors of its group and its causes, each with its stack.

    Args:
        error: the error.
        shown: the lines of a stack.
    """
    lines = shown(error.stack)
    for heading, one in errors_below(error):
        lines += [heading, *(f"  {line}" for line in error_lines(one, shown))]
    return lines


def worker_text(name: str) -> str:
    """Return a worker's name with the beginning of its incarnation: host-7.4de45f74."""
    stem, dot, incarnation = name.rpartition(".")
    return f"{stem}{dot}{incarnation[:INCARNATION]}"


def call_text(name: str, args: Any) -> str:
    """Return a call as code: checkout("7", cents=500). `args` is None if the arguments are not kept any more."""
    if args is None:
        return f"{printable(name)}(…)"
    positional, by_name = args if isinstance(args, list | tuple) and len(args) == 2 else ([args], {})
    parts = [preview(one) for one in positional] + [f"{printable(key)}={preview(one)}" for key, one in by_name.items()]
    return f"{printable(name)}({', '.join(parts)})"


def listed_facts(seqnum: int, started: Started, held: InstanceState) -> dict[str, Any]:
    """Return the members of a listed workflow for JSON."""
    ended = held.ended
    return {
        "id": started.id,
        "name": started.name,
        "status": status_of(ended, held.blocked),
        "blocked": users_stack(held.blocked),
        "owner": held.owner,
        "started_ms": start_ms(started),
        "ended_ms": None if ended is None else ended.at_ms,
        "attributes": dict(started.attributes),
        "parent": started.parent,
        "origin": None if started.args is None else started.origin,
        "seqnum": seqnum,
        **outcome_facts(None if ended is None or held.large else with_users_stack(ended.outcome)),
    }


def listed_line(started: Started, held: InstanceState, when: str) -> str:
    """Return a listed workflow on one line. `when` is the time of its start."""
    ended = held.ended
    parts = [status_of(ended, held.blocked).ljust(9), when, printable(started.id), printable(started.name)]
    if ended is not None:
        parts.append(span_text(max(0, ended.at_ms - start_ms(started))))
    elif held.owner:
        parts.append(f"by {printable(held.owner)}")
    parts += [f"fork of {printable(started.origin)}"] if started.origin else []
    parts += [f"{printable(key)}={printable(value)}" for key, value in sorted(started.attributes.items())]
    return "  ".join(parts)


def listed_reason(held: InstanceState) -> str:
    """Return why a listed workflow failed or is blocked; "" if it did not fail and is not blocked."""
    ended = held.ended
    if ended is None:
        return printable(held.blocked.partition("\n")[0])
    return outcome_text(ended.outcome) if status_of(ended) == "failed" else ""


def shortened(text: str, room: int) -> str:
    """Cut a text to `room` characters, but to no less than `LEAST_ROOM`; an ellipsis marks the cut."""
    most = max(room, LEAST_ROOM)
    return text if len(text) <= most else text[: most - 1] + "…"


def life_facts(life: Life) -> dict[str, Any]:
    """Return the members of a workflow for JSON, without its history; null for what the log does not keep."""
    started, ended, kept = life.started, life.ended, life.history_kept
    return {
        "id": life.id,
        "name": life.name,
        "args": None if started is None else started.args,
        "status": life.status,
        "group": None if started is None else started.group,
        "owner": life.owner,
        "blocked": life.blocked,
        "version": started.version if started is not None and kept else None,
        "started_ms": None if started is None else start_ms(started),
        "ended_ms": None if ended is None else ended.at_ms,
        "attributes": None if started is None else dict(started.attributes),
        "parent": None if started is None else started.parent,
        "origin": life.origin if kept else None,
        "cancels": life.cancels if kept else None,
        "idle_claims": life.idle_claims if kept else None,
        "history_kept": kept,
        "waits_for": [lock_facts(one) for one in life.waits_for],
        "holds": list(life.holds),
        "open": [span_facts(one) for one in life.open],
        **outcome_facts(life.outcome),
    }


def idle_text(life: Life) -> str:
    """Return the warning that a running workflow was taken over several times without recording anything; "" if it was not.

    A step that ends its process causes this. So do workers that are killed while a workflow waits: the log cannot tell them apart.
    """
    if life.status != "running" or life.idle_claims < IDLE_CLAIMS:
        return ""
    return f"{life.idle_claims} since it last recorded anything; if a step of it ends its process, cancel it"


def life_lines(life: Life, time_text: Callable[[int], str], *, full_stack: bool = False) -> list[str]:
    """Return the facts of a workflow for people, a name and a value on each line, and the stacks of its error and its causes.

    Args:
        life: the workflow.
        time_text: formats a time in milliseconds since 1970 UTC.
        full_stack: keep the frames of Boki's own code in the stack.
    """
    shown = stack_lines if full_stack else lambda stack: stack_lines(users_stack(stack))
    started, ended = life.started, life.ended
    rows: list[tuple[str, str]] = [("status", life.status)]
    if started is not None:
        rows += [("call", call_text(started.name, started.args)), ("app", printable(started.group))]
        rows += [("version", printable(started.version))] if started.version else []
        rows += [("parent", printable(started.parent))] if started.parent else []
        rows += [("fork of", printable(life.origin))] if life.origin else []
        rows += [("attribute", f"{printable(one)}={printable(value)}") for one, value in started.attributes.items()]
        rows += [("started", time_text(start_ms(started)))]
    rows += [("cancel", printable(reason) or "no reason given") for reason in life.cancels]
    stack: list[str] = []
    if life.blocked:
        why, _, below = life.blocked.partition("\n")
        rows.append(("blocked", printable(why)))
        stack = shown(below)
    elif life.owner:
        rows.append(("runs at", printable(life.owner)))
    if text := idle_text(life):
        rows.append(("takeovers", text))
    rows += [("waits for", lock_text(one, time_text)) for one in life.waits_for]
    rows += [("holds", f"lock '{printable(name)}'") for name in life.holds]
    rows += [("open", open_text(one, time_text)) for one in life.open[:OPEN_ROWS]]
    rows += [("open", f"{more} more: `boki flow steps` has all")] if (more := len(life.open) - OPEN_ROWS) > 0 else []
    if ended is not None:
        took = "" if started is None else f", after {span_text(max(0, ended.at_ms - start_ms(started)))}"
        rows.append(("ended", f"{time_text(ended.at_ms)}{took}"))
        text = outcome_text(ended.outcome) if life.result_kept else "not kept any more"
        rows.append(("error" if ended.outcome.error is not None else "result", text))
        error = life.outcome.error if life.outcome is not None else None
        stack = error_lines(error, shown) if error is not None else []
        if len(stack) > STACK_LINES:
            left = f"… {len(stack) - STACK_LINES} more lines: `boki flow show {printable(life.id)} --json` has all"
            stack = [*stack[:STACK_LINES], left]
    if not life.history_kept:
        rows.append(("history", life.not_kept))
    return [*(f"{name.ljust(10)}{value}" for name, value in rows), *stack]


def lock_facts(one: LockWait) -> dict[str, Any]:
    """Return the members of an awaited lock for JSON. `holder` is null if the workflow's turn has come."""
    return {
        "lock": one.name,
        "since_ms": one.since_ms,
        "holder": one.holder or None,
        "holder_blocked": one.holder_blocked,
    }


def holder_text(one: LockWait) -> str:
    """Return which workflow holds an awaited lock, and the error that blocks the holder, if any."""
    return f"held by {printable(one.holder)}{blocked_text(one)}" if one.holder else "its turn has come"


def blocked_text(one: LockWait) -> str:
    """Return the error that blocks the holder of a lock, in brackets; "" if the holder is not blocked."""
    error = one.holder_blocked.partition("\n")[0].partition(":")[0]
    return f" (blocked: {printable(error)})" if error else ""


def lock_text(one: LockWait, time_text: Callable[[int], str]) -> str:
    """Return an awaited lock on one line: its holder, and since when the workflow waits."""
    return f"lock '{printable(one.name)}', {holder_text(one)}, since {time_text(one.since_ms)}"


def open_text(span: Span, time_text: Callable[[int], str]) -> str:
    """Return an open timer, child or begun step of `Life.open` on one line."""
    if span.kind == "timer":
        return f"{span_name(span)}, until {time_text(span.due_ms)}, unless it was cancelled"
    child = f" {printable(span.child)}" if span.child else ""
    return f"{span.kind} {span_name(span)}{child}, begun {time_text(span.begin_ms)}"


def stack_lines(stack: str) -> list[str]:
    """Return a stack trace as printable lines below a heading, innermost call last; no lines if it is empty."""
    return ["stack, innermost call last:", *map(printable, stack.rstrip("\n").split("\n"))] if stack else []


def span_facts(span: Span) -> dict[str, Any]:
    """Return the members of a span for JSON."""
    made: dict[str, Any] = {"kind": span.kind, "name": span.name, "key": span.key}
    made |= {"begin_ms": span.begin_ms, "end_ms": span.end_ms}
    if span.kind == "step":
        made["attempts"] = span.attempts
    if span.child:
        made["workflow"] = span.child
    if span.due_ms:
        made["due_ms"] = span.due_ms
    if span.kind in ("signal", "emit"):
        made["value"] = span.value
    if span.kind == "launch":
        made["status"] = span.value
    if isinstance(span.value, LockWait):
        made |= {name: value for name, value in lock_facts(span.value).items() if name.startswith("holder")}
    return made | outcome_facts(span.outcome)


def span_name(span: Span) -> str:
    """Return the name of a span for people, without its kind."""
    if span.kind == "timer":
        return f"timer of {span_text(max(0, span.due_ms - span.begin_ms))}" if span.due_ms else "timer"
    if span.kind in ("queued", "lock") and span.end_ms is None:
        return f"{'waits for' if span.kind == 'queued' else 'holds'} lock '{printable(span.name)}'"
    if span.kind == "fork":
        return f"forked from {printable(span.name)}"
    if span.kind in ("cancel", "end", "blocked"):
        return {"cancel": "asked to end", "end": "ended", "blocked": "cannot go on"}[span.kind]
    return printable(worker_text(span.name) if span.kind == "takeover" else span.name)


def span_detail(span: Span) -> str:
    """Return the outcome of a span, or the value or reason that came with it; "" if there is none."""
    if span.outcome is not None:
        return outcome_text(span.outcome)
    if span.kind in ("signal", "emit"):
        return preview(span.value)
    if isinstance(span.value, LockWait):
        return holder_text(span.value)
    if span.kind == "launch":
        return str(span.value or "started")
    if span.kind == "takeover":
        return f"from {printable(worker_text(str(span.value)))}" if span.value else ""
    return printable(span.name.partition("\n")[0]) if span.kind in ("cancel", "blocked") else ""


def span_took(span: Span) -> str:
    """Return the duration of a span; "" for a span that has none."""
    if span.kind in MARKS or span.kind == "transaction":
        return ""
    if span.kind == "step" and span.end_ms is None:
        return "begun, has not ended"
    if span.kind == "timer" and span.end_ms is None:
        return OPEN_TIMER
    return "open" if span.end_ms is None else span_text(max(0, span.end_ms - span.begin_ms))


def span_line(span: Span, begin_ms: int) -> str:
    """Return a span on one line: the time since the workflow began, the kind, the name, the duration and the outcome."""
    parts = [f"+{span_text(max(0, span.begin_ms - begin_ms))}".rjust(9), span.kind.ljust(11), span_name(span)]
    if span.child:
        parts.append(printable(span.child))
    if span.attempts > 1:
        parts.append(f"{span.attempts} attempts")
    detail = span_detail(span)
    return "  ".join([*parts, *([took] if (took := span_took(span)) else []), *([f"→ {detail}"] if detail else [])])
