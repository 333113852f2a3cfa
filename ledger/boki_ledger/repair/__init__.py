"""Repair: copies of closed ledgers come back when a bookie is lost.

Pure: `plan` decides which copies are missing, in what order they are made anew, and where. `away` remembers how long bookies are gone,
`audit` is what a look at all ledgers found. Coroutines: `worker` repairs one ledger, at the rate of `pace`; `auditor` looks at
all of them and hands them to workers. `drain_rules` decides whether a bookie may be drained and what that waits for; `drain` begins
and ends it. `pause` is a person's word for all controllers. `settings` is what a process may set of it.
"""
