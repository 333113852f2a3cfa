"""Plans for who reads logs past an engine: which records of a range there are, and where they lie. Pure but for `handles`, `client`, and
what reads metalogs.

A state is taken as `pages` of one moment, which an engine sends one by one (`messages`, `handles`; `client` asks for them) or a loaded
snapshot gives at once; `plan` joins them, `partitions` cuts a plan into what travels, `limited` says how far a stream goes in a step.
`facts` are the terms and offsets they all speak of.

`metalogs` reads what logs ordered, `verify` proves with it that nothing is missing.
"""
