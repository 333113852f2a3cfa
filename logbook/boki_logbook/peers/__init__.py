"""Engines among each other: connections, forwarded calls, and headers of entries that are pushed.

`engine_list` and `engine_dial` find and reach them, `forwarding` asks one that serves a book, `header_publisher` and
`header_subscriptions` exchange `pushed_headers`.
"""
