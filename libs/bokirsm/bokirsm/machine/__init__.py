"""The language of machines, and the core that runs one handler. All pure.

Read `refs` and `values` (machines, events and questions as values), `fields` and `states` (what a class declares), `declaration` (the
checks when a class is created), `handling` (one handler: a state and an event in, a commit out), `machine` (the base class of machines:
what a handler can call) and `app` (the machines of a program).
"""
