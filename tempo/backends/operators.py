"""Primitives for backends: what they mean, what is known of a call when its function is made, and errors of indices."""

from tempo.sdg.call import Call, StaticType, static_type
from tempo.sdg.composites.attention import MOST_SCORES, Band, PointBlock, band_of, points_at_once
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS, Builder, Role, call_for
from tempo.sdg.operators.axes import Attrs
from tempo.sdg.operators.creation import function_of, result_of
from tempo.sdg.operators.located import out_of_range, point_of, put_together, within_at

__all__ = [
    "Attrs",
    "Band",
    "Builder",
    "Call",
    "MOST_SCORES",
    "OPERATORS",
    "PointBlock",
    "Role",
    "StaticType",
    "TensorType",
    "band_of",
    "call_for",
    "function_of",
    "out_of_range",
    "point_of",
    "points_at_once",
    "put_together",
    "result_of",
    "static_type",
    "within_at",
]
