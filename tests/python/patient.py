"""On a slow machine: what a test calls without a time-out has a minute. Imported for its effect."""
import functools

import engram_pool


def patient(function):
    @functools.wraps(function)
    def call(*arguments, **options):
        return function(*arguments, **{"timeout": 60, **options})
    return call


for owner, names in ((engram_pool.Pool, ("__init__", "table")),
                     (engram_pool.Table, ("read", "read_rows", "prefetch", "prefetch_rows"))):
    for name in names:
        setattr(owner, name, patient(getattr(owner, name)))
