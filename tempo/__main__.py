"""`python -m tempo`."""

import sys

from tempo.cli import main

sys.exit(main())
