"""What all tests share."""

from hypothesis import settings

# No test asserts on time: a busy machine is no failure.
settings.register_profile("tempo", deadline=None)
settings.load_profile("tempo")
