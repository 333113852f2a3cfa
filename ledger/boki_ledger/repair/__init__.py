"""Repair: copies of closed ledgers come back when a bookie is lost, and leave a bookie that is drained.

Pure: `plan` decides which copies are missing, in what order they are made anew, and where; `drain_rules` whether a bookie may be
drained and what that waits for; `scrub_rules` what the copies of an entry say. `away` remembers how long bookies are gone, `audit` is
what a look at all ledgers found. Coroutines: `worker` repairs one ledger, at the rate of `pace`; `scrub` looks for each copy that is
named; `auditor` looks at all of them and hands them to both; `drain` begins and ends a drain; `autorecovery` reads what that of
Apache does; `pause` is a person's word to all controllers. `settings` is what a process may set of it.
"""
