"""The loops that dependences need, and what is left of the dependences inside of them, for schedulers."""

from tempo.analysis.dependence.levels import (
    DIRECTIONS,
    Direction,
    Distance,
    LegalLoop,
    Level,
    Link,
    components,
    levels,
    loops,
    topological,
    within,
)

__all__ = [
    "DIRECTIONS",
    "Direction",
    "Distance",
    "LegalLoop",
    "Level",
    "Link",
    "components",
    "levels",
    "loops",
    "topological",
    "within",
]
