"""Python source of segments: the emitters that a backend extends, and what they know of slots and scalars."""

from tempo.loop_ir.analysis.names import blocks, made_anew, operands
from tempo.loop_ir.codegen.python import Emitter, Step
from tempo.loop_ir.codegen.scalar_emitter import ScalarEmitter, along, form_of, has_scalars, is_element, is_scalar_slot
from tempo.loop_ir.codegen.syntax import assign, call, deleted, name, subscript
from tempo.loop_ir.codegen.unit_slices import Pick, cut_axes, picks, starts
from tempo.sdg.cache_blocks import BLOCK_BYTES, block_of, cache_blocks, empty

__all__ = [
    "BLOCK_BYTES",
    "Emitter",
    "Pick",
    "ScalarEmitter",
    "Step",
    "along",
    "assign",
    "block_of",
    "blocks",
    "cache_blocks",
    "call",
    "cut_axes",
    "deleted",
    "empty",
    "form_of",
    "has_scalars",
    "is_element",
    "is_scalar_slot",
    "made_anew",
    "name",
    "picks",
    "starts",
    "subscript",
    "operands",
]
