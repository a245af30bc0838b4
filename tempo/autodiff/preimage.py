"""Inverting index maps: the points p of a consumer that read the point q of a producer.

Consumer and producer share dims, so while the equations `e(p) = q` are solved, the consumer's dims are *primed*
symbols (`t'`), and plain ones are the producer's. What is solved is expressed in q; dims of p that q leaves free are
ranges to sum over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, product

from tempo.sdg.graph import IndexMap, Point
from tempo.symbolic import (
    TRUE,
    And,
    Box,
    Condition,
    Context,
    Dim,
    Eq,
    Expr,
    FloorDiv,
    Ge,
    Max,
    Min,
    Symbol,
    conjunction,
    maximum,
    minimum,
    var,
)


@dataclass(frozen=True)
class GuardedBox:
    """The points of a node at which something is known: the condition holds, inside the box."""

    dims: tuple[Dim, ...]
    box: Box
    condition: Condition = TRUE

    def context(self) -> Context:
        return Context.of(self.dims, self.condition, box=self.box)


@dataclass(frozen=True)
class ReadRange:
    """`start <= p_dim < start + length`, summed over; the bounds are over q."""

    dim: Symbol
    start: Expr
    length: Expr


@dataclass(frozen=True)
class Preimage:
    """Some of the consumers of q: where `condition` (over q) holds, those with the solved coordinates and in ranges.

    `own` (over p, unprimed) must hold of them too: the part of the consumer's condition that no range says. `mask`
    relates q to the primed dims of the ranges.
    """

    condition: Condition
    solved: Mapping[Symbol, Expr]
    ranges: tuple[ReadRange, ...]
    own: Condition
    mask: Condition

    @property
    def substitution(self) -> dict[Symbol, Expr]:
        """Primed dims to what q determines."""
        return {primed(symbol): value for symbol, value in self.solved.items()}


def primed(symbol: Symbol) -> Symbol:
    return Symbol(f"{symbol.name}'", symbol.kind)


def preimages(reader: GuardedBox, map: IndexMap, producer: GuardedBox) -> list[Preimage]:
    """The consumers in `reader` that read q in `producer`, in disjoint parts."""
    prime = {dim.symbol: var(primed(dim.symbol)) for dim in reader.dims}
    facts = [_Fact(part.substitute(prime), part) for part in parts(reader.condition)]
    context = reader.context()
    simplify = context.simplify
    for dim, index in zip(producer.dims, map, strict=True):
        q = var(dim.symbol)
        if isinstance(index, Point):
            facts.append(_Fact(simplify(index.index).substitute(prime).eq(q)))
            continue
        if context.implies(index.length.le(0)):
            return []
        start = simplify(index.start).substitute(prime)
        stop = simplify(index.start + index.length).substitute(prime)
        facts += [_Fact(part) for part in parts(q.ge(start) & q.lt(stop))]
    choices = ([[_Fact(part, fact.own) for part in chosen] for chosen in _choices(fact.condition)] for fact in facts)
    solved = (_MapInverter(reader, producer, list(chain(*chosen))).solve() for chosen in product(*choices))
    return [preimage for preimage in solved if preimage is not None]


@dataclass(frozen=True)
class _Fact:
    """A condition over q and primed p; `own` is what the consumer's own condition said, over p."""

    condition: Condition
    own: Condition | None = None


def parts(condition: Condition) -> tuple[Condition, ...]:
    """The conditions that hold together where this one does."""
    if condition == TRUE:
        return ()
    return condition.args if isinstance(condition, And) else (condition,)


def _choices(condition: Condition) -> list[list[Condition]]:
    """An equation of a lone minimum or maximum apart: `min(a, b) == 0` is `a == 0 <= b`, or `b == 0 < a`."""
    terms = condition.expr.terms if isinstance(condition, Eq) and condition.expr.const == 0 else ()
    atom, factor = terms[0] if len(terms) == 1 else (None, 0)
    if not isinstance(atom, Min | Max) or abs(factor) != 1:
        return [[condition]]
    sign = 1 if isinstance(atom, Min) else -1
    found = []
    for place, arg in enumerate(atom.args):
        earlier = [(sign * other).gt(0) for other in atom.args[:place]]
        later = [(sign * other).ge(0) for other in atom.args[place + 1 :]]
        found += [[*chosen, *earlier, *later] for chosen in _choices(arg.eq(0))]
    return found


@dataclass
class _MapInverter:
    reader: GuardedBox
    producer: GuardedBox
    facts: list[_Fact]
    solved: dict[Symbol, Expr] = field(default_factory=dict)  # primed
    mask: list[Condition] = field(default_factory=list)

    def __post_init__(self) -> None:
        bounds = tuple((primed(symbol), lo, hi) for symbol, lo, hi in self.reader.box.bounds)
        self.box = Box((*self.producer.box.bounds, *bounds))
        self.unknown = {primed(dim.symbol) for dim in self.reader.dims}

    def solve(self) -> Preimage | None:
        self._eliminate()
        own, bounds, over_q = self._sort()
        for symbol, value in self.solved.items():
            over_q += [value.ge(self.box.lo(symbol)), value.lt(self.box.hi(symbol))]
        base = GuardedBox(self.producer.dims, self.producer.box).context()
        condition = base.simplify_condition(conjunction(over_q))
        ranges: list[ReadRange] = []
        for dim in self.reader.dims:
            if base.excludes(condition):
                return None
            if primed(dim.symbol) in self.unknown:
                found, condition = self._range(dim.symbol, bounds[primed(dim.symbol)], base, condition)
                ranges.append(found)
        single = [each for each in ranges if base.implies(each.length.le(1))]
        condition &= conjunction(each.length.ge(1) for each in single)  # at some sizes there may be none
        ones = {each.dim: each.start for each in single}
        mask = conjunction(self.mask).substitute({primed(symbol): value for symbol, value in ones.items()})
        if mask.symbols().isdisjoint(self.unknown):
            condition, mask = base.simplify_condition(condition & mask), TRUE
        if base.excludes(condition):
            return None
        symbols = {primed(dim.symbol): dim.symbol for dim in self.reader.dims}
        solved = {symbols[symbol]: value for symbol, value in self.solved.items()} | ones
        wider = tuple(each for each in ranges if each.dim not in ones)
        return Preimage(condition, solved, wider, conjunction(own), mask)

    def _eliminate(self) -> None:
        """Solves one equation after another for the one unknown that it has; what it cannot solve stays a fact."""
        while (fact := next((fact for fact in self.facts if self._use(fact)), None)) is not None:
            self.facts.remove(fact)

    def _use(self, fact: _Fact) -> bool:
        condition = fact.condition.substitute(self.solved)
        unknown = condition.symbols() & self.unknown
        if len(unknown) != 1 or not isinstance(condition, Eq):
            return False
        (symbol,), equation = unknown, condition.expr
        factor = equation.coefficient(symbol)
        rest = equation - factor * var(symbol)
        if symbol in rest.symbols():
            return self._divided(equation, symbol, fact.own)
        if abs(factor) != 1:
            self.facts.append(_Fact((rest % abs(factor)).eq(0)))
        value = -rest if factor > 0 else rest
        self.solved[symbol] = value // abs(factor)
        self.unknown.remove(symbol)
        return True

    def _divided(self, equation: Expr, symbol: Symbol, own: Condition | None) -> bool:
        """`c * (inner // k) == v` is `k * (v // c) <= inner < k * (v // c) + k` where c divides v."""
        atoms = [(atom, factor) for atom, factor in equation.terms if symbol in atom.symbols()]
        atom, factor = atoms[0]
        if len(atoms) != 1 or not isinstance(atom, FloorDiv):
            return False
        rest = equation - factor * (atom.expr // atom.divisor)
        start = (-rest if factor > 0 else rest) // abs(factor) * atom.divisor
        self.facts.append(_Fact((rest % abs(factor)).eq(0)))
        self.facts += [_Fact(atom.expr.ge(start), own), _Fact(atom.expr.lt(start + atom.divisor), own)]
        return True

    def _sort(self) -> tuple[list[Condition], dict[Symbol, list[Expr]], list[Condition]]:
        """The consumer's own conditions that stay, bounds `e >= 0` by the one unknown in them, conditions over q."""
        own: list[Condition] = []
        bounds: dict[Symbol, list[Expr]] = {symbol: [] for symbol in self.unknown}
        over_q: list[Condition] = []
        for fact in self.facts:
            for part in parts(self._decided(fact.condition.substitute(self.solved))):
                part = self._undivided(part)
                unknown = part.symbols() & self.unknown
                if not unknown:
                    over_q.append(part)
                elif len(unknown) == 1 and isinstance(part, Ge) and _is_bound(part.expr, next(iter(unknown))):
                    bounds[next(iter(unknown))].append(part.expr)
                elif fact.own is not None:
                    own.append(fact.own)
                else:
                    self.mask.append(part)
        return own, bounds, over_q

    def _undivided(self, condition: Condition) -> Condition:
        """`c * (inner // k) + rest >= 0`, where only `inner` has unknowns, as what it says of `inner`."""
        terms = condition.expr.terms if isinstance(condition, Ge) else ()
        atoms = [(atom, factor) for atom, factor in terms if not atom.symbols().isdisjoint(self.unknown)]
        atom, factor = atoms[0] if len(atoms) == 1 else (None, 0)
        if not isinstance(condition, Ge) or not isinstance(atom, FloorDiv):
            return condition
        rest = condition.expr - factor * (atom.expr // atom.divisor)
        if factor > 0:
            return self._undivided(atom.expr.ge(-(rest // factor) * atom.divisor))
        return self._undivided(atom.expr.lt((rest // -factor + 1) * atom.divisor))

    def _decided(self, condition: Condition) -> Condition:
        """Without the alternatives that cannot be, where that makes it simpler."""
        if isinstance(condition, Ge | Eq) or condition == TRUE:
            return condition
        dims = [*self.producer.dims, *(Dim(primed(dim.symbol), dim.size) for dim in self.reader.dims)]
        others = (fact.condition.substitute(self.solved) for fact in self.facts)
        known = [other for other in others if isinstance(other, Ge | Eq)]
        return Context.of(dims, *known, box=self.box).simplify_condition(condition)

    def _range(
        self, dim: Symbol, bounds: Iterable[Expr], base: Context, condition: Condition
    ) -> tuple[ReadRange, Condition]:
        symbol = primed(dim)
        lows, highs = [self.box.lo(symbol)], [self.box.hi(symbol)]
        for bound in bounds:
            factor = bound.coefficient(symbol)
            rest = bound - factor * var(symbol)
            if factor > 0:  # p >= -rest / factor, rounded up
                lows.append(-(rest // factor))
            else:  # p <= rest / -factor, rounded down
                highs.append(rest // -factor + 1)
        context = base.assume(condition)
        start, stop = context.simplify(maximum(*lows)), context.simplify(minimum(*highs))
        if not context.implies(stop.ge(start)):
            condition = base.simplify_condition(condition & stop.gt(start))
            context = base.assume(condition)
            start, stop = context.simplify(start), context.simplify(stop)
        return ReadRange(dim, start, context.simplify(stop - start)), condition


def _is_bound(expr: Expr, symbol: Symbol) -> bool:
    factor = expr.coefficient(symbol)
    return factor != 0 and symbol not in (expr - factor * var(symbol)).symbols()
