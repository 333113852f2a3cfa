"""A bank on reliable state machines: transfers in steps, which neither lose nor double money though hosts are killed and stopped.

    python -m examples.banking
    python -m examples.banking --seconds 600 --seed 7

The command starts a `boki dev` and three hosts, and clients that ask for transfers between a few accounts. Meanwhile it kills hosts with
kill -9 and stops others for longer than their lease. An auditor counts all money while transfers are on their way. The command prints the
transfers by their outcome, the audits, and whether each of three promises holds. Exit code 1 if one does not.

Read `app` (accounts and brokers), `audit` (the auditor), then `checks` (the promises) and `trial` (the clients); `host` is the process that
runs machines.
"""
