"""What all tests share."""

import os

from hypothesis import settings

# What tests compile is not kept for other processes, and none of what others left is used.
os.environ.setdefault("TEMPO_CACHE_DIR", "")

# No test asserts on time: a busy machine is no failure. `make test` takes few examples of each property, by
# `--hypothesis-profile=few`, `make test-all` some, and `tox` as many as a property asks for.
settings.register_profile("tempo", deadline=None, max_examples=100)
settings.register_profile("some", deadline=None, max_examples=30)
settings.register_profile("few", deadline=None, max_examples=10)
settings.load_profile("tempo")
