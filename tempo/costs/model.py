"""A cost, and the rates that make seconds of it. They decide between factors, not between percents."""

from __future__ import annotations

from dataclasses import dataclass

RUNS = 10
"""Of an executable, for which it is compiled."""
POINTS = 1000
"""How often a region or a loop runs where that is not known."""


@dataclass(frozen=True)
class Costs:
    """Of a backend on a device, in seconds: a byte that is read from memory, a launch (an operator or a turn of a loop,
    beside its arithmetic), a choice between copies of code, compiling an operator, an arithmetic operation, a byte of
    what fits into `cache` bytes, and a change from host to device and back. `copies`: whether a mask on what is read
    costs as much as reading it twice more, as it does where operators are not fused. `part`: what reading a part of an
    array costs, to reading all of one; XLA copies the part before a contraction on a CPU."""

    byte: float
    launch: float
    choice: float
    compiling: float
    copies: bool
    part: float = 1
    operation: float = 1 / 2e10
    cached_byte: float = 1 / 4e10
    cache: int = 1 << 20
    transition: float = 4e-5


EAGER = Costs(byte=1 / 8e9, launch=3e-6, choice=3e-7, compiling=1e-4, copies=True)
FUSED = Costs(byte=1 / 8e9, launch=1e-6, choice=5e-6, compiling=5e-3, copies=False, part=2)
EAGER_CUDA = Costs(1 / 1.5e12, 8e-6, 3e-7, 1e-4, copies=True, operation=1 / 2e13, cached_byte=1 / 5e12, cache=1 << 25)
FUSED_CUDA = Costs(1 / 1.5e12, 4e-6, 3e-5, 1e-2, copies=False, operation=1 / 2e13, cached_byte=1 / 5e12, cache=1 << 25)


@dataclass(frozen=True)
class Cost:
    """What one way to run something does. `compiled`: operators, shared among the runs of what is compiled; `cached`:
    whether what is moved stays in the cache."""

    rates: Costs
    operations: float = 0
    bytes: float = 0
    launches: float = 0
    transitions: float = 0
    choices: float = 0
    compiled: float = 0
    cached: bool = False

    @property
    def seconds(self) -> float:
        rates = self.rates
        moved = self.bytes * (rates.cached_byte if self.cached else rates.byte)
        once = self.choices * rates.choice + self.compiled * rates.compiling
        host = self.launches * rates.launch + self.transitions * rates.transition
        return self.operations * rates.operation + moved + host + once

    def __str__(self) -> str:
        parts = [f"{self.operations:.3g} operations", f"{self.bytes:.3g} bytes{'' if self.cached else ' uncached'}"]
        parts.append(f"{self.launches} launches")
        if self.transitions:
            parts.append(f"{self.transitions} host transitions")
        return f"{self.seconds * 1e3:.3g} ms ({', '.join(parts)})"
