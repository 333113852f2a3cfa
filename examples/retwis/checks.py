"""What has to be true of a network in the end, whatever was killed meanwhile. Pure: from notes and a snapshot.

    faults = check(notes, state)          # sentences; none: nothing is lost, nothing invented

A worker notes each call before it is made, and its answer. Of a call without an answer (its worker was killed, the answer
was lost) either is right. Of the others:

- what was acknowledged is there, exactly once; what was refused is not; what is there was asked for
- a name and its user belong to each other; who follows whom is the same from both sides; counts are what they count
- what a list of posts drops, it drops from its end: of each client, what is listed are its newest posts, in its order
- a post is listed where it was acknowledged to go, and nowhere but with who follows its author, and with all
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

DONE: Final = "done"
REFUSED: Final = "refused"
UNKNOWN: Final = "unknown"


class NotedCall(NamedTuple):
    """One call of a client.

    Attributes:
        client: who made it; each makes one after the other. number: which of its calls.
        about: what it asked for. outcome: how it ended. answer: what came back.
    """

    client: str
    number: int
    operation: str
    about: Mapping[str, Any]
    outcome: str
    answer: Any = None


class NetworkState(NamedTuple):
    """The network at one place of the log: each kind of object by what is behind its colon."""

    names: Mapping[str, Mapping[str, Any]]
    users: Mapping[str, Mapping[str, Any]]
    posts: Mapping[str, Mapping[str, Any]]
    timeline: Sequence[str]
    timeline_posts: int
    user_posts: int


def check(notes: Iterable[NotedCall], state: NetworkState) -> list[str]:
    """What is wrong."""
    kept = list(notes)
    return [*_users(kept, state), *_follows(kept, state), *_posts(kept, state), *_lists(kept, state)]


def _of(notes: Iterable[NotedCall], operation: str, outcome: str | None = None) -> list[NotedCall]:
    return [note for note in notes if note.operation == operation and outcome in (None, note.outcome)]


def _users(notes: list[NotedCall], state: NetworkState) -> list[str]:
    faults = []
    tried = {note.about["name"] for note in _of(notes, "register")}
    for note in _of(notes, "register", DONE):
        name, id = note.about["name"], note.answer
        if state.names.get(name, {}).get("id") != id:
            faults.append(f"user {name} was registered as {id}, and is not there")
    for name, known in state.names.items():
        if name not in tried:
            faults.append(f"nobody registered {name}")
        if state.users.get(known["id"], {}).get("username") != name:
            faults.append(f"the name {name} and its user {known['id']} do not belong to each other")
    if len(state.names) != len(state.users):
        faults.append(f"{len(state.names)} names for {len(state.users)} users")
    return faults


def _follows(notes: list[NotedCall], state: NetworkState) -> list[str]:
    faults = []
    tried = {(note.about["follower"], note.about["followee"]) for note in _of(notes, "follow")}
    there = {(one, other) for one, known in state.users.items() for other in known["followees"]}
    back = {(one, other) for other, known in state.users.items() for one in known["followers"]}
    acknowledged = {(n.about["follower"], n.about["followee"]) for n in _of(notes, "follow", DONE) if n.answer}
    faults += [f"{one} follows {other}, and {other} does not know" for one, other in sorted(there - back)]
    faults += [f"{other} is followed by {one}, who does not know" for one, other in sorted(back - there)]
    faults += [f"nobody made {one} follow {other}" for one, other in sorted(there - tried)]
    faults += [f"{one} followed {other}, and it is gone" for one, other in sorted(acknowledged - there)]
    for id, known in state.users.items():
        counts = (known["following"], known["followed"])
        found = (len(known["followees"]), len(known["followers"]))
        if counts != found:
            faults.append(f"user {id} counts {counts} whom it follows and who follow it, there are {found}")
    return faults


def _posts(notes: list[NotedCall], state: NetworkState) -> list[str]:
    faults = []
    calls = {note.about["id"]: note for note in _of(notes, "post")}
    for id, note in calls.items():
        known = state.posts.get(id)
        if note.outcome == DONE and known is None:
            faults.append(f"post {id} of {note.client} was acknowledged, and is lost")
        if note.outcome == REFUSED and known is not None:
            faults.append(f"post {id} of {note.client} was refused, and is there")
        if known is not None and (known["author"], known["body"]) != (note.about["author"], note.about["body"]):
            faults.append(f"post {id} is not what {note.client} wrote")
    return faults + [f"nobody wrote post {id}" for id in state.posts if id not in calls]


def _lists(notes: list[NotedCall], state: NetworkState) -> list[str]:
    """Every list of posts: that of all, and each user's."""
    calls = sorted(_of(notes, "post"), key=lambda note: (note.client, note.number))
    written = [note for note in calls if note.about["id"] in state.posts]
    faults = _list("the timeline", state.timeline, written, written, state.timeline_posts)
    due: dict[str, list[NotedCall]] = {id: [] for id in state.users}
    possible: dict[str, list[NotedCall]] = {id: [] for id in state.users}
    for note in written:
        for one in note.answer if note.outcome == DONE else ():
            due.setdefault(one, []).append(note)
        for one in state.users.get(note.about["author"], {}).get("followers", ()):
            possible.setdefault(one, []).append(note)
    for id, known in state.users.items():
        faults += _list(f"the list of user {id}", known["posts"], due[id], possible[id], state.user_posts)
    return faults


def _list(
    what: str, listed: Sequence[str], due: Sequence[NotedCall], possible: Sequence[NotedCall], limit: int
) -> list[str]:
    """`due` have to be listed unless they were dropped, of `possible` nothing else may be; both in the order of each client."""
    faults = []
    if len(set(listed)) != len(listed):
        faults.append(f"{what} has a post twice")
    if len(listed) > limit:
        faults.append(f"{what} has {len(listed)} posts, more than {limit}")
    places = {id: place for place, id in enumerate(listed)}
    strangers = places.keys() - {note.about["id"] for note in possible}
    faults += [f"{what} has post {id}, which does not belong there" for id in sorted(strangers)]
    by_client: dict[str, list[str]] = {}
    must = {note.about["id"] for note in due}
    for note in possible:
        if note.about["id"] in must or note.about["id"] in places:
            by_client.setdefault(note.client, []).append(note.about["id"])
    for client, ids in by_client.items():
        found = [places[id] for id in ids if id in places]
        if found != sorted(found):
            faults.append(f"{what} has the posts of {client} in another order")
        dropped = len(ids) - len(found)
        missing = [id for id in ids[dropped:] if id not in places] if len(listed) == limit else ids
        faults += [f"{what} lacks post {id} of {client}" for id in missing if id not in places]
    return faults
