"""Whole clusters on the simulated machine.

`shape` draws one, `cluster` starts its roles, `hosts` the processes of users, `model_cluster` one without roles; `invariants` are checked
while it runs.
"""
