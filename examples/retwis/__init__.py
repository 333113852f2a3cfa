"""Retwis, a small social network on BokiStore, checked while its processes are killed with kill -9.

    python -m examples.retwis

Runs for about half a minute: it starts a cluster of processes and workers with clients, kills a process every second, and prints calls by
operation and outcome, the kills, and whether each of four promises holds. Exit code 1 if one does not. `--help` lists the options.

Retwis is the store benchmark of Boki's evaluation (SOSP '21, section 7.3). Read `app` (the operations as transactions and snapshots),
then `mix` (random operations of a client), `worker` (a process of clients that notes its calls), `checks` (the promises) and `trial`.
"""
