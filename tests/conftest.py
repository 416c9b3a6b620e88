"""Property tests draw the same examples in each run, so that a change is judged by what it changed.

`pytest --hypothesis-profile=random` draws new ones, to look for failures. Examples have no deadline: no test fails
because the machine is slow.
"""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("random", derandomize=False, deadline=None)
settings.load_profile("repeatable")
