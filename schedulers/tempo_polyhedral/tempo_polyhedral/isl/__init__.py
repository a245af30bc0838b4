"""Everything that this package takes from isl, the integer set library: named dims in, plain values out.

Nothing outside of this package imports islpy. Values are immutable; dims are `Symbol`s, never positions; sets and
relations are made from `Condition`s, and loops come back as a `ScheduleTree`. No isl text is parsed. What goes wrong
inside isl is an `IslError`.
"""

from tempo_polyhedral.isl.errors import IslError
from tempo_polyhedral.isl.loops import loops
from tempo_polyhedral.isl.orders import Order, schedule
from tempo_polyhedral.isl.sets import Domain, Parameters, Relation

__all__ = ["Domain", "IslError", "Order", "Parameters", "Relation", "loops", "schedule"]
