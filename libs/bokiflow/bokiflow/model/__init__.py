"""The format of workflows and the rules that read it. Pure.

Read `flow_events` and `records` first, then `delivery_order` and `history_fold`.
"""
