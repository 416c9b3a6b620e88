"""Property tests draw the same examples in each run, so that a change is judged by what it changed.

`pytest --hypothesis-profile=random` draws new ones, to look for failures.
"""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("random", derandomize=False)
settings.load_profile("repeatable")
