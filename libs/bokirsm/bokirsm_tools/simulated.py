"""Machines in the simulator: `boki sim run --profile rsm`.

Clients create machines, send them events, ask them and pay between accounts. Hosts run an old program that fails at some events and lacks a
class, and are upgraded one by one to a new one, so that both run side by side; some leave their block and enter again. An operator resumes
machines with faults or skips their events. Each is a host of the simulator of its own: it is killed, paused and cut off, has a wrong clock,
and a time-out short enough that outcomes stay unknown. One has full inboxes as soon as an event waits.

After the faults all events are handled. The records of the book keep their laws (`record_laws`), and the journals of the machines
agree with the outcomes that clients got: an acknowledged event happened once, a refused one never, an unknown one at most once, and
events of a client in the order of its calls. Outputs came outside at least once and in order, none of a handler that failed, and were
answered once. Money is conserved, each timer fired once and not early, each child was born and ended once. Then days pass, in which no
host runs: a timer of days fires once, a cancelled one does not, and machines have what they had.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import boki
import boki.sim
from boki_common.errors import BokiError, Conflict
from bokilib import Log
from bokilib.ports import BookPort
from bokirsm import Host, IdReused, InboxFull, MachineFaulted, NoSuchMachine, Ref, Refused, Rsm
from bokirsm_tools import simulated_machines as machines
from bokirsm_tools.reading import GroupStates, group_states
from bokirsm_tools.record_laws import RecordLaws, covered
from bokirsm_tools.simulated_machines import BAD, GROUP, MONEY, NEW, OLD

BOOK: Final = "works"
SECONDS: Final = 4.0
MEMORY_BYTES: Final = (2**24, 0)
"""Of hosts with an even number, and of others: these read nearly each event's machine from the log."""
INBOX_BYTES: Final = (2**26, 2**26, 1)
"""Of hosts by number: in a partition of the last one, the first event that waits fills the inboxes."""
LEASE_S: Final = 2.0
TIMEOUTS_S: Final = (1.0, 4.0, 20.0)
NODES: Final = 4
ACCOUNTS: Final = 3
FRAGILES: Final = 2
SENDERS: Final = 2
KEYS: Final = 6
HOSTS: Final = 3
ASK_S: Final = 5.0
SETTLE_S: Final = 120.0
"""Seconds after the faults in which all that was sent is handled."""
FAULT_S: Final = 30.0
"""Seconds in which a machine with a fault says so, after the faults of the cluster: a host may have to take it over."""
DAY_S: Final = 86_400.0


@dataclass
class Call:
    """A call of a client that sends one text.

    Attributes:
        machines: names of the machines that should note the text.
        outcome: "ok", "never", or "unknown".
    """

    machines: tuple[str, ...]
    outcome: str = "unknown"


@dataclass
class Notes:
    """The calls of all clients and their outcomes. They outlive the processes of clients.

    Attributes:
        calls: by text. Texts of one life of a client are `life/number`, with rising numbers.
        fresh: machines of the new class whose creation was acknowledged.
        skips: skips that an operator began, by name of the machine.
        keyed: created machines by key.
        refused: calls that got InboxFull.
    """

    calls: dict[str, Call] = field(default_factory=dict)
    fresh: list[Ref[Any]] = field(default_factory=list)
    broken: list[Ref[Any]] = field(default_factory=list)
    skips: Counter[str] = field(default_factory=Counter)
    keyed: dict[str, str] = field(default_factory=dict)
    faults_seen: int = 0
    refused: int = 0


def wrong_outcomes(notes: Notes, journals: Mapping[str, list[str]]) -> Iterable[str]:
    """Yield contradictions between the outcomes of calls and the journals of machines, by name."""
    found = {name: Counter(lines) for name, lines in journals.items()}
    missing: Counter[str] = Counter()
    for text, call in notes.calls.items():
        times = [found[name][text] for name in call.machines]
        if max(times) > 1:
            yield f"{text} was handled {max(times)} times by {call.machines}"
        if call.outcome == "never" and any(times):
            yield f"{text} was refused for certain, and was handled by {call.machines}"
        if call.outcome == "unknown" and not any(times):
            continue
        for name, count in zip(call.machines, times, strict=True):
            missing[name] += call.outcome != "never" and not count
    for name, count in missing.items():
        if count > notes.skips[name]:
            yield f"{count} acknowledged events of {name} were not handled, {notes.skips[name]} were skipped"


def out_of_order(journals: Mapping[str, list[str]], calls: Mapping[str, Call]) -> Iterable[str]:
    """Yield texts of clients that a machine handled after later ones of the same life.

    An event whose outcome stayed unknown may come into the log behind later events of its client.
    """
    for name, lines in journals.items():
        newest: dict[str, int] = {}
        for line in lines:
            life, _, number = line.partition("/")
            if number.isdecimal() and "." in life and " " not in life:
                later = newest.get(life, 0)
                if later >= int(number) and (line not in calls or calls[line].outcome != "unknown"):
                    yield f"{name} handled {line} after {life}/{later}"
                newest[life] = max(later, int(number))


def wrong_mails(journal: list[str], mails: list[tuple[int, int]]) -> Iterable[str]:
    """Yield contradictions between the journal of a sender and the mails of it that came outside, each with its number and mark.

    Each mail of a handler that was committed comes, some repeatedly, the first time in order, and is answered once. No other one comes.
    """
    emitted = [(int(line.split()[1]), int(line.split()[2])) for line in journal if line.startswith("mailed ")]
    first = list(dict.fromkeys(mails))
    if first != emitted:
        yield f"mails {first} came outside, and {emitted} were emitted"
    posted = Counter(line for line in journal if line.startswith("posted "))
    if posted != Counter(f"posted {number}" for number, _ in emitted):
        yield f"{emitted} were emitted, and the answers are {dict(posted)}"


def left_over(found: GroupStates) -> list[str]:
    """Return what partitions have still to handle: events, outputs, faults, and timers, but those of reminders."""
    late = [f"{text} has a fault" for text in sorted(found.faulted)]
    for state in found.states.values():
        late += [f"{one.event or 'creation'} to {one.to} waits" for one in state.pending.values()]
        late += [f"outputs of {machine} wait" for machine in state.outputs.size_of]
        late += [
            f"timers {sorted(names)} of {machine} have not fired"
            for machine, names in state.timers.items()
            if names and "/reminder" not in machine
        ]
    return late


class Works:
    """A run of the simulation."""

    def __init__(self, cluster: boki.sim.Cluster) -> None:
        self.notes: Final = Notes()
        self.outside: Final = machines.Outside()
        self.deployed = 0
        """Hosts up to this number run the new program from their next start on."""
        self.stop = False
        self.laws: Final = RecordLaws(GROUP)
        self._read = 0
        self._whole = True
        self._cluster = cluster

    async def run(self) -> None:
        """Run all hosts until the faults end; check, let days pass, and check again."""
        cluster = self._cluster
        clients = [cluster.host(f"caller-{number}", self.call) for number in (1, 2, 3)]
        if cluster.seed % 3:  # else faults stay open across kills and moves of partitions
            clients += [cluster.host("operator", self.operate)]
        hosts = [cluster.host(f"machines-{number}", self.work) for number in range(1, HOSTS + 1)]
        await asyncio.sleep(SECONDS / 2)
        for number in range(1, HOSTS + 1):  # a deploy, host by host
            self.deployed = number
            hosts[number - 1].kill()
            await asyncio.sleep(SECONDS / 8)
        await cluster.faults_over()
        self.stop = True
        for host in clients:
            await host.result()
        async with await cluster.connect() as client:
            journals = await self.settled(Rsm(NEW, client.book(BOOK)))
        for host in hosts:
            await host.stop()
        await self.days(journals)

    # -- programs

    async def work(self, env: boki.sim.Environment) -> None:
        """Run machines until the host is killed, leaving and entering again now and then."""
        number = int(env.name[-1])
        async with await env.connect(timeout=_one_of(env.random, TIMEOUTS_S)) as client:
            log = Log(client.book(BOOK), random=env.random)
            name = env.name if env.random.below(2) else None
            while True:
                app = NEW if self.deployed >= number else OLD
                leaves_s = None if env.random.below(2) else env.random.below(int(SECONDS * 1_000)) / 1_000
                memory_bytes = MEMORY_BYTES[number % 2]
                posts = machines.Posts(self.outside, env.random)
                async with Host(
                    app,
                    log,
                    name=name,
                    lease_s=LEASE_S,
                    memory_bytes=memory_bytes,
                    inbox_bytes=INBOX_BYTES[number - 1],
                    plugins=[posts],
                    random=env.random,
                ):
                    try:
                        async with asyncio.timeout(leaves_s):
                            await asyncio.Event().wait()
                    except TimeoutError:
                        pass

    async def operate(self, env: boki.sim.Environment) -> None:
        """Resume machines that may have faults, or skip their events."""
        async with await env.connect(timeout=_one_of(env.random, TIMEOUTS_S)) as client:
            rsm = Rsm(NEW, client.book(BOOK), random=env.random)
            all_machines = await self.fixed(rsm)
            while not self.stop:
                names = [name for name in all_machines if name.startswith(("node", "account", "fragile"))]
                likely = [*(all_machines[one] for one in names), *self.notes.broken, *self.notes.broken]
                ref = _one_of(env.random, likely)
                try:
                    if env.random.below(3):
                        await rsm.resume(ref)
                    else:
                        self.notes.skips[ref.name] += 1
                        await rsm.skip(ref)
                except NoSuchMachine:
                    pass  # it has no fault
                except BokiError:
                    pass  # another look follows
                await asyncio.sleep(env.random.below(100) / 1000)

    async def fixed(self, rsm: Rsm) -> dict[str, Ref[Any]]:
        """Create the machines that all programs share, or find them; return them by name."""
        archive = await self.surely(partial(rsm.create, machines.Archive, key="archive"))
        found: dict[str, Ref[Any]] = {"archive": archive}
        wanted: list[tuple[str, Any, Any]] = [(f"node-{one}", machines.Node, None) for one in range(NODES)]
        wanted += [(f"account-{one}", machines.Account, None) for one in range(ACCOUNTS)]
        wanted += [(f"fragile-{one}", machines.Fragile, None) for one in range(FRAGILES)]
        wanted += [(f"sender-{one}", machines.Sender, None) for one in range(SENDERS)]
        wanted += [("parent", machines.Parent, machines.Family(archive))]
        wanted += [(f"reminder-{one}", machines.Reminder, machines.Begin(archive)) for one in ("keeps", "forgets")]
        near: dict[str, Ref[Any]] = dict.fromkeys(("node-1", "account-1"), archive)
        refs = await asyncio.gather(
            *(self.surely(partial(rsm.create, cls, init, key=name, near=near.get(name))) for name, cls, init in wanted)
        )
        return found | {name: ref for (name, _, _), ref in zip(wanted, refs, strict=True)}

    async def surely(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Repeat a call that may be repeated until its outcome is known."""
        while True:
            try:
                return await call()
            except Conflict as error:
                raise AssertionError(f"a call of a client of machines raised {error!r}") from error
            except boki.OutcomeUnknown:
                pass
            except BokiError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(0.1)

    async def call(self, env: boki.sim.Environment) -> None:
        """Make the calls of one life of a client, one after the other."""
        async with await env.connect(timeout=_one_of(env.random, TIMEOUTS_S)) as client:
            rsm = Rsm(NEW, client.book(BOOK), random=env.random)
            async with rsm:
                one = _Client(self, rsm, await self.fixed(rsm), env)
                while not self.stop:
                    await one.act()
                    await asyncio.sleep(env.random.below(100) / 1000)

    # -- the end

    async def settled(self, rsm: Rsm) -> dict[str, list[str]]:
        """Wait until all that was sent is handled, and check it. Return the journals of the machines that live."""
        fixed = await self.fixed(rsm)
        await self.sent_to_the_end(rsm, fixed, fixed["reminder-forgets"], machines.Forget())
        await self.read_laws(rsm.log.book)
        for text in self.laws.waiting_for_decision():
            await self.says_its_fault(rsm, Ref.parse(text))
        for ref in self.notes.broken:
            await self.sent_to_the_end(rsm, fixed, ref, machines.Break("late", 0))
        late = ["nothing was looked at"]
        loop = asyncio.get_running_loop()
        ends = loop.time() + SETTLE_S
        journals: dict[str, list[str]] = {}
        pause_s = 0.5
        while late and loop.time() < ends:
            for number in range(NODES):  # each time: a `Close` that was deferred closes it again
                await self.sent_to_the_end(rsm, fixed, fixed[f"node-{number}"], machines.Open())
            journals = await self.journals(rsm, fixed, ends)
            await self.read_laws(rsm.log.book)
            broken = [
                *self.laws.broken,
                *(f"{name}: {line}" for name, lines in journals.items() for line in lines if line[:1] == BAD),
            ]
            broken += out_of_order(journals, self.notes.calls)
            assert not broken, broken[0]
            for text in self.laws.waiting_for_decision():
                await self.resume(rsm, Ref.parse(text))
            late = list(self.late(journals)) or await self.unhandled(rsm)
            if not late and await self.journals(rsm, fixed, ends) != journals:
                late = ["machines handled events after they were asked"]
            if late:
                pause_s *= 2
                await asyncio.sleep(pause_s)
        assert not late, f"{SETTLE_S:g} s after the faults: {late[0]} ({len(late)} of these)"
        return journals

    async def journals(self, rsm: Rsm, fixed: Mapping[str, Ref[Any]], ends: float) -> dict[str, list[str]]:
        """Ask all machines that live for their journals."""
        return {name: await self.ask(rsm, ref, ends) for name, ref in (*fixed.items(), *self.others())}

    async def unhandled(self, rsm: Rsm) -> list[str]:
        """Return what waits in the log, as its partitions have it, also after trims. Machines with faults are resumed.

        Journals that were asked for before may lack what was handled since: they are right if they are the same afterwards.
        """
        found = await group_states(rsm.log, GROUP)
        assert not found.unreadable, f"partitions cannot be read: {found.unreadable}"
        for text in sorted(found.faulted):
            await self.resume(rsm, Ref.parse(text))
        return left_over(found)

    async def sent_to_the_end(self, rsm: Rsm, fixed: Mapping[str, Ref[Any]], ref: Ref[Any], event: Any) -> None:
        """Send an event. While its partition is full, resume all machines: one with a fault may be why."""
        ends = asyncio.get_running_loop().time() + SETTLE_S

        async def send() -> None:
            try:
                await rsm.send(ref, event)
            except InboxFull as error:
                self.notes.refused += 1
                if asyncio.get_running_loop().time() >= ends:
                    raise AssertionError(f"{SETTLE_S:g} s after the faults: {error}") from error
                for one in (*fixed.values(), *self.notes.broken):
                    await self.resume(rsm, one)
                raise

        await self.surely(send)

    def others(self) -> list[tuple[str, Ref[Any]]]:
        """Return the machines that clients created without a key."""
        return [(one.name, one) for one in self.notes.fresh]

    async def ask(self, rsm: Rsm, ref: Ref[Any], ends: float) -> list[str]:
        """Return the journal of a machine. Its fault, if it has one, is resumed: all hosts have the mended code."""
        while True:
            try:
                found: list[str] = await rsm.ask(machines.Journal().to(ref), timeout_s=ASK_S)
                return found
            except MachineFaulted as error:
                self.check_fault(error, ref.name)
                await self.resume(rsm, ref)
            except (TimeoutError, BokiError) as error:
                if isinstance(error, InboxFull):  # a fault, of which it cannot say, may be why
                    for one in (ref, *self.notes.broken):
                        await self.resume(rsm, one)
                last = repr(error)
                assert asyncio.get_running_loop().time() < ends, (
                    f"{SETTLE_S:g} s after the faults {ref} does not answer: {last}"
                )
            await asyncio.sleep(0.2)

    async def says_its_fault(self, rsm: Rsm, ref: Ref[Any]) -> None:
        """Check that a machine with a fault answers questions by its fault, also after it moved to another host."""
        try:
            await rsm.ask(machines.Journal().to(ref), timeout_s=FAULT_S)
        except MachineFaulted as error:
            self.check_fault(error, ref.name)
        except TimeoutError:
            await self.read_laws(rsm.log.book)
            still = str(ref) in self.laws.waiting_for_decision()
            assert not still, f"{ref} has a fault, and does not answer so within {FAULT_S:g} s"
        except BokiError:
            pass  # it was not asked

    def check_fault(self, error: MachineFaulted, name: str) -> None:
        """Check that a fault names the machine that was asked."""
        self.notes.faults_seen += 1
        found = Ref.parse(error.facts["machine"]).name
        assert found == name, f"{name} was asked, and the fault is of {found}"

    async def resume(self, rsm: Rsm, ref: Ref[Any]) -> None:
        """Resume a machine; one without a fault is left alone."""
        try:
            await rsm.resume(ref)
        except BokiError:
            pass  # it is asked again

    async def read_laws(self, book: BookPort) -> None:
        """Hold the new records of the book against their laws, until the first one that was trimmed before it was read.

        A trim follows its checkpoint, which is in the log by the time that the records have been read.
        """
        if not self._whole:
            return
        last = await book.now(consistency="linearizable")
        records = [item async for item in book.read(start=self._read + 1, stop=last + 1)]
        end = await book.now(consistency="linearizable")
        later = [item async for item in book.read(start=last + 1, stop=end + 1)]
        covers = max((covered(one.data) for one in (*records, *later) if isinstance(one, boki.Record)), default=0)
        if covers > self._read:
            self._whole = False
            return
        for item in records:
            if not isinstance(item, boki.Record):
                self._whole = False
                return
            self._read = item.seqnum
            self.laws.read(item.seqnum, item.time_ms, item.data)

    def late(self, journals: Mapping[str, list[str]]) -> Iterable[str]:
        """Yield effects that are missing yet, and contradictions to outcomes of calls."""
        if self._whole:
            yield from (f"{one} is not taken" for one in self.laws.waiting())
            yield from (f"{one} has a fault" for one in self.laws.faulted())
            for machine, names in self.laws.timers_of().items():
                if "/reminder" not in machine:
                    yield f"timers {sorted(names)} of {machine} have not fired"
        yield from wrong_outcomes(self.notes, journals)
        cents = sum(int(line.split()[1]) for lines in journals.values() for line in lines if line.startswith("cents "))
        if cents != ACCOUNTS * MONEY:
            yield f"accounts have {cents} cents, expected {ACCOUNTS * MONEY}"
        counts = [
            (name, *line.split())
            for name, lines in journals.items()
            for line in lines
            if line.startswith(("sent ", "came "))
        ]
        sent = {(name, other): number for name, kind, other, number in counts if kind == "sent"}
        came = {(other, name): number for name, kind, other, number in counts if kind == "came"}
        if sent != came:
            yield f"nodes sent {sent}, and {came} came"
        yield from self._families(journals)
        for name in (name for name in journals if name.startswith("sender")):
            yield from wrong_mails(journals[name], self.outside.mails.get(name, []))

    def _families(self, journals: Mapping[str, list[str]]) -> Iterable[str]:
        """Yield children and machines with keys that were not born once, or did not end once."""
        grown = Counter(journals["parent"])
        for text in [line for line in grown if "/" in line and not line.startswith("grown ")]:
            if grown[f"grown {text}"] != 1:
                yield f"the child of {text} ended {grown[f'grown {text}']} times"
        lives = Counter(line for line in journals["archive"] if line.startswith(("born ", "died ")))
        twice = [line for line, times in lives.items() if times > 1]
        if twice:
            yield f"the archive has {twice[0]} {lives[twice[0]]} times"
        for line in lives:
            kind, name = line.split()
            if kind == "died" and not lives[f"born {name}"]:
                yield f"{name} died and was not born"
            if kind == "born" and "#" in name and not lives[f"died {name}"]:
                yield f"{name} was born and did not end"
        for name in (*self.notes.keyed.values(), *(one.name for one in self.notes.fresh)):
            if lives[f"born {name}"] != 1:
                yield f"{name} was created, and born {lives[f'born {name}']} times"

    # -- days

    async def days(self, before: Mapping[str, list[str]]) -> None:
        """Let days pass without hosts. Then a timer of days has fired once, and all machines have what they had."""
        for number in (1, 2):
            await self._cluster.rest(4 * DAY_S)
            async with await self._cluster.connect() as client:
                log = Log(client.book(BOOK))
                async with Host(NEW, log, lease_s=LEASE_S, plugins=[machines.Posts(self.outside, None)]) as host:
                    await self._check_days(host.rsm, before, number)

    async def _check_days(self, rsm: Rsm, before: Mapping[str, list[str]], number: int) -> None:
        fixed = await self.fixed(rsm)
        loop = asyncio.get_running_loop()
        ends = loop.time() + SETTLE_S
        keeps = await self.ask(rsm, fixed["reminder-keeps"], ends)
        while keeps != ["reminded"]:
            assert not keeps and loop.time() < ends, f"after days the reminder has {keeps}"
            await asyncio.sleep(1.0)
            keeps = await self.ask(rsm, fixed["reminder-keeps"], ends)
        forgets = await self.ask(rsm, fixed["reminder-forgets"], ends)
        assert forgets in (["forgotten"], ["reminded", "forgotten"]), f"the reminder that was cancelled has {forgets}"
        note = f"late/{number}"
        await self.surely(partial(rsm.send, fixed["node-0"], machines.Note(note), dedup_id=note))
        for name, ref in (*fixed.items(), *self.others()):
            found = await self.ask(rsm, ref, ends)
            if "reminder" not in name:
                lines = [line for line in found if not line.startswith("late/")]
                assert lines == before[name], f"after days {name} has {lines}, expected {before[name]}"
        await self.read_laws(rsm.log.book)
        assert not self.laws.broken, self.laws.broken[0]


class _Client:
    """A life of a client: it makes calls one after the other, and notes their outcomes."""

    def __init__(self, works: Works, rsm: Rsm, fixed: dict[str, Ref[Any]], env: boki.sim.Environment) -> None:
        self._works: Final = works
        self._notes: Final = works.notes
        self._rsm: Final = rsm
        self._fixed: Final = fixed
        self._random: Final = env.random
        self._life: Final = f"{env.name}.{env.random.token(4).hex()}"
        self._number = 0
        self._fresh: list[Ref[Any]] = []

    async def act(self) -> None:
        """Make one call."""
        actions = [self.note, self.note_surely, self.note_many, self.pay, self.pay, self.spread, self.spread, self.grow]
        actions += [
            self.mail,
            self.mail,
            self.once,
            self.once,
            self.fresh,
            self.break_one,
            self.break_one,
            self.born_broken,
            self.gate,
        ]
        await _one_of(self._random, actions)()

    def _pick(self, kind: str) -> Ref[Any]:
        return self._fixed[_one_of(self._random, [name for name in self._fixed if name.startswith(kind)])]

    def _call(self, *to: Ref[Any]) -> tuple[str, Call]:
        self._number += 1
        text = f"{self._life}/{self._number}"
        call = self._notes.calls[text] = Call(tuple(one.name for one in to))
        return text, call

    async def _noted(self, call: Call, action: Callable[[], Awaitable[Any]]) -> None:
        """Note the outcome of a call."""
        try:
            await action()
        except Refused:
            call.outcome = "never"
        except MachineFaulted as error:
            self._works.check_fault(error, call.machines[0])
        except TimeoutError:
            pass
        except Conflict as error:
            raise AssertionError(f"a client without a condition got {error!r}") from error
        except InboxFull:
            self._notes.refused += 1
            call.outcome = "never"
        except BokiError as error:
            if error.definite:
                call.outcome = "never"
        else:
            call.outcome = "ok"

    # -- calls

    async def note(self) -> None:
        node = self._pick("node")
        text, call = self._call(node)
        await self._noted(call, partial(self._rsm.send, node, machines.Note(text)))

    async def mail(self) -> None:
        sender = self._pick("sender")
        text, call = self._call(sender)
        await self._noted(call, partial(self._rsm.send, sender, machines.Note(text)))

    async def note_surely(self) -> None:
        """Send with an id, again while the outcome is unknown, and sometimes once more."""
        node = _one_of(self._random, [self._pick("node"), *self._fresh])
        text, call = self._call(node)
        send = partial(self._rsm.send, node, machines.Note(text), dedup_id=text)
        await self._works.surely(send)
        call.outcome = "ok"
        if self._random.below(3) == 0:
            await self._works.surely(send)

    async def note_many(self) -> None:
        nodes = [self._fixed[f"node-{one}"] for one in self._random.shuffled(range(NODES))[:3]]
        text, call = self._call(*nodes)
        await self._noted(call, partial(self._rsm.send_many, [(one, machines.Note(text)) for one in nodes]))

    async def pay(self) -> None:
        payer, payee = self._pick("account"), self._pick("account")
        text, call = self._call(payer)
        question = machines.Pay(text, payee, self._random.below(MONEY)).to(payer)
        timeout_s = _one_of(self._random, (0.3, ASK_S))
        await self._noted(call, partial(self._rsm.ask, question, timeout_s=timeout_s))

    async def spread(self) -> None:
        node = self._pick("node")
        text, call = self._call(node)
        to = [self._fixed[f"node-{one}"] for one in range(NODES) if self._random.below(2)]
        await self._noted(call, partial(self._rsm.send, node, machines.Spread(text, to, self._random.below(4))))

    async def grow(self) -> None:
        parent = self._fixed["parent"]
        text, call = self._call(parent)
        event = machines.Grow(text, self._random.below(2), self._random.below(2) == 0)
        await self._noted(call, partial(self._rsm.send, parent, event))

    async def once(self) -> None:
        """Create a machine with a key, which may exist or have halted; end it sometimes."""
        key, archive = f"once-{self._random.below(KEYS)}", self._fixed["archive"]
        ref = await self._works.surely(partial(self._rsm.create, machines.Once, machines.Begin(archive), key=key))
        assert self._notes.keyed.setdefault(key, ref.name) == ref.name, (
            f"key {key} is {ref} and {self._notes.keyed[key]}"
        )
        if self._random.below(3) == 0:
            await self._works.surely(partial(self._rsm.send, ref, machines.End()))
        elif self._random.below(3) == 0:
            try:
                await self._works.surely(partial(self._rsm.create, machines.Once, machines.Begin(ref), key=key))
            except IdReused:
                return
            raise AssertionError(f"key {key} was created with two first events")

    async def fresh(self) -> None:
        """Create a machine of the class that old programs lack."""
        init = machines.Begin(self._fixed["archive"])
        try:
            ref = await self._rsm.create(
                machines.Fresh, init, near=self._pick("node") if self._random.below(2) else None
            )
        except BokiError:
            return
        self._fresh.append(ref)
        self._notes.fresh.append(ref)

    async def break_one(self) -> None:
        """Send an event at which the old code fails."""
        fragile = self._pick("fragile")
        text, call = self._call(fragile)
        await self._noted(call, partial(self._rsm.send, fragile, machines.Break(text, self._number)))
        if self._random.below(2) == 0:
            try:
                await self._rsm.ask(machines.Journal().to(fragile), timeout_s=0.5)
            except MachineFaulted as error:
                self._works.check_fault(error, fragile.name)
            except (TimeoutError, BokiError):
                pass

    async def born_broken(self) -> None:
        """Create a machine whose first event fails in the old code."""
        self._number += 1
        try:
            ref = await self._rsm.create(machines.Fragile, machines.Break(f"{self._life}/{self._number}", self._number))
            self._notes.broken.append(ref)
            await self._rsm.send(ref, machines.Break(f"{self._life}/{self._number} again", 0))
        except BokiError:
            pass

    async def gate(self) -> None:
        """Close a node or open it; an event that is lost changes nothing that is checked."""
        try:
            await self._rsm.send(self._pick("node"), machines.Close() if self._random.below(2) else machines.Open())
        except BokiError:
            pass


def _one_of(random: boki.Random, choices: Any) -> Any:
    return choices[random.below(len(choices))]


async def program(cluster: boki.sim.Cluster) -> None:
    """Run the simulation once in a cluster."""
    await Works(cluster).run()


RSM: Final = boki.sim.Subject(program, seconds=SECONDS, steady=True)
"""The subject of `boki sim run --profile rsm`."""
