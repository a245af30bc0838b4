"""What a backend builds on to run programs inside its framework's own automatic differentiation."""

from tempo.compiler.options import Options
from tempo.language.program import Program
from tempo.runtime.reverse_mode import Argument, Forward, ReverseMode, refuse_second_order

__all__ = ["Argument", "Forward", "Options", "Program", "ReverseMode", "refuse_second_order"]
