"""`python -m tempo`."""

import os
import sys

from tempo.cli import main

try:
    status = main()
    sys.stdout.flush()
except BrokenPipeError:  # whoever read the output has enough of it
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    status = 0
sys.exit(status)
