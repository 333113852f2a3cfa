"""A sequencer that stands by: looks at the view and at those who serve, and says which log to take over, and when.

Knows who is there (`sequencer_watch`) and asks the rules (`standby_rules`). While its own process serves a log it watches nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.metadata.store import MetadataStore
from boki_common.runtime.ports import Random
from boki_metalog.follow.sequencer_member import sequencer_members
from boki_metalog.sequencer.sequencer_watch import SequencerWatch
from boki_metalog.sequencer.standby_rules import Presence, Step, Suspicions, Vacancy, next_step, turns
from boki_metalog.settings import SequencerSettings
from boki_metalog.terms.view import Installed, View

_CHANCES: Final = 1_000


class Standby:
    """See the module. `only`: the one log to stand by for; None: any of the view."""

    def __init__(
        self,
        metadata: MetadataStore,
        incarnation: str,
        *,
        only: int | None,
        settings: SequencerSettings,
        rng: Random,
        on_change: Callable[[], None],
        token: ClusterToken = NO_TOKEN,
    ) -> None:
        self.only = only
        self._metadata = metadata
        self._incarnation = incarnation
        self._settings = settings
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._watch = SequencerWatch(metadata, settings, on_change=on_change, token=token)
        self._suspicions = Suspicions(first_s=settings.backoff_first_s, limit_s=settings.backoff_limit_s)
        self._since: dict[tuple[int, int], float] = {}
        """(log, term) → since when its sequencer is known not to serve."""
        self._at_once: tuple[int, int] | None = None

    def replace_at_once(self, log: int, term: int) -> None:
        """Our own term is full: nobody has to be asked."""
        self._at_once = (log, term)

    def rest(self) -> None:
        """This process serves: watches nobody until it is asked again."""
        self._watch.look_at({})
        self._since.clear()
        self._at_once = None

    async def look(self, view: View) -> Step:
        """Which log to take now, if any, or when to look again. Raises MetadataUnavailable."""
        own = view.sequencers.get(self._incarnation)
        logs = [self.only] if self.only is not None else sorted(view.logs)
        logs = [log for log in logs if log in view.logs and own in (None, log)]
        others: dict[int, Installed] = {}
        for log in logs:
            installed = view.installed(log)
            if installed is not None and installed.sequencer != self._incarnation:
                others[log] = installed
        self._watch.look_at(others)
        self._suspicions.keep(view.logs)
        vacancies = self._vacancies(view, logs)
        if not vacancies:
            return Step(None, self._settings.standby_check_s)
        if self._at_once is not None and self._at_once in self._since:
            return Step(self._at_once[0], 0.0)
        places = dict.fromkeys(logs, 0)
        if own is None:
            serving = view.sequencers
            members = await sequencer_members(self._metadata)
            free = [one for one, member in members.items() if one not in serving and member.spares]
            places = turns([one.log for one in vacancies], free, self._incarnation)
        return next_step(
            vacancies,
            places,
            self._suspicions,
            stagger_s=self._settings.standby_stagger_s,
            now_s=self._loop.time(),
        )

    def changed(self, log: int) -> None:
        """This process changed the log's term because it suspected its sequencer; of its own full term that is not so."""
        if self._at_once is None or self._at_once[0] != log:
            self._suspicions.changed(log, self._loop.time(), chance=self._rng.below(_CHANCES) / _CHANCES)

    def stuck(self, log: int) -> None:
        """The log's term cannot be ended now: others come first, and it again after a pause that doubles."""
        self._at_once = None
        self._suspicions.changed(log, self._loop.time(), chance=self._rng.below(_CHANCES) / _CHANCES)

    async def close(self) -> None:
        await self._watch.close()

    def _vacancies(self, view: View, logs: list[int]) -> list[Vacancy]:
        vacancies, since = [], {}
        for log in logs:
            installed = view.installed(log)
            presence = Presence.GONE
            if installed is not None:
                mine = installed.sequencer == self._incarnation
                presence = Presence.OVER if mine else self._watch.presence(log, installed.term)
            if presence in (Presence.OVER, Presence.GONE):
                key = (log, view.term_of(log))
                since[key] = self._since.get(key, self._loop.time())
                stopped = presence is Presence.OVER
                vacancies.append(Vacancy(log, since[key], self._settings.over_grace_s if stopped else 0.0))
        self._since = since
        return vacancies
