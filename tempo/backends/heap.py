"""A heap without contents, for backends that say what a call of a segment holds (`CompiledSegment.trial`)."""

from tempo.loop_ir.analysis.heap import Frame, Heap, Piece
from tempo.loop_ir.codegen.trial import array_of

__all__ = ["Frame", "Heap", "Piece", "array_of"]
