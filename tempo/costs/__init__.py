"""What running things is expected to cost: one model, whose rates are those of a backend on a device.

model           a cost: operations, bytes, launches, transitions, choices, compiling; the rates that make seconds of it
vectorization   of running a group of nodes point by point, in blocks, or at all points at once
extents         of running what reads a varying length at the greatest one, in blocks, or by choice of copies
"""
