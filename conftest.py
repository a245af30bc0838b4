"""What all tests share."""

import os

from hypothesis import settings

# What tests compile is not kept for other processes, and none of what others left is used.
os.environ.setdefault("TEMPO_CACHE_DIR", "")

# No test asserts on time: a busy machine is no failure.
settings.register_profile("tempo", deadline=None)
settings.load_profile("tempo")
