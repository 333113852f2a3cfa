"""A running workflow: its event loop, the calls that its code makes, its signals, locks and transactions.

Read `calls` first (workflows and steps as programs define them), then `flow_loop` (the event loop of the code), `instance` (deliveries,
`commands`, effects) and `in_workflow` (functions that the code calls). `transactional` runs transactions as steps.
"""
