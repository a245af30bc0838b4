"""What is wrong with a checkpoint, as whoever gave it needs to hear it."""

from __future__ import annotations

import tempo as tp


class CheckpointError(tp.TempoError, ValueError):
    """A folder that holds no model that can be run: what is missing, broken or not implemented, and in which file."""
