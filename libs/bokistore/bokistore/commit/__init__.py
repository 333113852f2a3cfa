"""Transactions and their commit.

Read `transaction_rules` (reads and writes), `open_snapshot` and `transactions`; then `group_rules`, `turns` and `group_commit`, which runs
`jobs` through `bodies`.
"""
