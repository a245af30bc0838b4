"""These files run outside of the checkout (see run.py), not with the other tests."""

collect_ignore = ["disturbance.py", "run.py"]
