"""Who makes faults happen.

`nemesis` injects what the seed drew into whom it names (`whom`); `administrator`, `strangers`, `poison` and `fence_race` do what people and
hostile programs do.
"""
