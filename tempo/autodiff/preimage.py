"""Inverting index maps: the points p of a consumer that read the point q of a producer.

Consumer and producer share dims, so while the equations `e(p) = q` are solved, the consumer's dims are *primed*
symbols (`t'`), and plain ones are the producer's. What is solved is expressed in q; dims of p that q leaves free are
ranges to sum over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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
    const,
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
    facts = [_Fact(part.substitute(prime), part) for part in _parts(reader.condition)]
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
        facts += [_Fact(part) for part in _parts(q.ge(start) & q.lt(stop))]
    equations = [fact for fact in facts if isinstance(fact.condition, Eq)]
    conditions = [fact for fact in facts if not isinstance(fact.condition, Eq)]
    found = []
    for chosen, extra in _pieces(equations):
        solver = _MapInverter(reader, producer, [*conditions, *extra])
        preimage = solver.solve(chosen)
        if preimage is not None:
            found.append(preimage)
    return found


@dataclass(frozen=True)
class _Fact:
    """A condition over q and primed p; `own` is what the consumer's own condition said, over p."""

    condition: Condition
    own: Condition | None = None


def _parts(condition: Condition) -> tuple[Condition, ...]:
    if condition == TRUE:
        return ()
    return condition.args if isinstance(condition, And) else (condition,)


def _pieces(equations: Sequence[_Fact]) -> list[tuple[list[_Fact], list[_Fact]]]:
    """Equations without a lone minimum or maximum: `min(a, b) == 0` is `a == 0 <= b`, or `b == 0 < a`."""
    pieces: list[tuple[list[_Fact], list[_Fact]]] = [([], [])]
    for equation in equations:
        own = equation.own
        choices = [(_Fact(e, own), [_Fact(part, own) for part in more]) for e, more in _choices(equation.condition)]
        pieces = [([*chosen, e], [*extra, *more]) for chosen, extra in pieces for e, more in choices]
    return pieces


def _choices(equation: Condition) -> list[tuple[Condition, list[Condition]]]:
    lone = equation.expr if isinstance(equation, Eq) else const(0)
    if len(lone.terms) != 1 or lone.const != 0:
        return [(equation, [])]
    atom, factor = lone.terms[0]
    if not isinstance(atom, Min | Max) or abs(factor) != 1:
        return [(equation, [])]
    sign = 1 if isinstance(atom, Min) else -1
    found = []
    for place, arg in enumerate(atom.args):
        earlier = [(sign * other).gt(0) for other in atom.args[:place]]
        later = [(sign * other).ge(0) for other in atom.args[place + 1 :]]
        found += [(e, [*earlier, *later, *more]) for e, more in _choices(arg.eq(0))]
    return found


@dataclass
class _MapInverter:
    reader: GuardedBox
    producer: GuardedBox
    facts: list[_Fact]
    solved: dict[Symbol, Expr] = field(default_factory=dict)  # primed
    mask: list[Condition] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.unknown = {primed(dim.symbol) for dim in self.reader.dims}

    def solve(self, equations: Sequence[_Fact]) -> Preimage | None:
        self.facts += self._eliminate(list(equations))
        own, bounds, over_q = self._sort()
        over_q += [part for symbol, value in self.solved.items() for part in self._inside(symbol, value)]
        region = GuardedBox(self.producer.dims, self.producer.box)
        base = region.context()
        condition = base.simplify_condition(conjunction(over_q))
        if base.excludes(condition):
            return None
        ranges: list[ReadRange] = []
        for dim in self.reader.dims:
            if primed(dim.symbol) not in self.unknown:
                continue
            found, condition = self._range(dim, bounds, base, condition)
            if base.excludes(condition):
                return None
            ranges.append(found)
        ones = {each.dim: each.start for each in ranges if each.length == const(1)}
        symbols = {primed(dim.symbol): dim.symbol for dim in self.reader.dims}
        solved = {symbols[symbol]: value for symbol, value in self.solved.items()} | ones
        mask = conjunction(self.mask).substitute({primed(symbol): value for symbol, value in ones.items()})
        wider = tuple(each for each in ranges if each.dim not in ones)
        if not any(symbol.name.endswith("'") for symbol in mask.symbols()):
            condition, mask = base.simplify_condition(condition & mask), TRUE
        return Preimage(condition, solved, wider, conjunction(own), mask)

    def _eliminate(self, equations: list[_Fact]) -> list[_Fact]:
        """Solves one equation after another for the one unknown that it has; returns those that it cannot solve."""
        progress = True
        while progress:
            progress = False
            for equation in list(equations):
                if self._use(equation.condition.substitute(self.solved), equation.own):
                    equations.remove(equation)
                    progress = True
        return equations

    def _use(self, condition: Condition, own: Condition | None) -> bool:
        unknown = condition.symbols() & self.unknown
        if not unknown:
            self.facts.append(_Fact(condition))
            return True
        if len(unknown) > 1 or not isinstance(condition, Eq):
            return False
        (symbol,), equation = unknown, condition.expr
        factor = equation.coefficient(symbol)
        rest = equation - factor * var(symbol)
        if symbol in rest.symbols():
            return self._divided(equation, symbol, own)
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

    def _inside(self, symbol: Symbol, value: Expr) -> tuple[Condition, Condition]:
        dim = next(dim.symbol for dim in self.reader.dims if primed(dim.symbol) == symbol)
        return value.ge(self.reader.box.lo(dim)), value.lt(self.reader.box.hi(dim))

    def _sort(self) -> tuple[list[Condition], dict[Symbol, list[Expr]], list[Condition]]:
        """The consumer's own conditions that stay, bounds `e >= 0` by the one unknown in them, conditions over q."""
        own: list[Condition] = []
        bounds: dict[Symbol, list[Expr]] = {symbol: [] for symbol in self.unknown}
        over_q: list[Condition] = []
        for fact in self.facts:
            for part in _parts(self._decided(fact.condition.substitute(self.solved))):
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

    def _decided(self, condition: Condition) -> Condition:
        """Without the alternatives that cannot be, where that makes it simpler."""
        if isinstance(condition, Ge | Eq) or condition == TRUE:
            return condition
        dims = [*self.producer.dims, *(Dim(primed(dim.symbol), dim.size) for dim in self.reader.dims)]
        bounds = (
            *self.producer.box.bounds,
            *((primed(symbol), lo, hi) for symbol, lo, hi in self.reader.box.bounds),
        )
        others = (fact.condition.substitute(self.solved) for fact in self.facts)
        known = [other for other in others if isinstance(other, Ge | Eq)]
        return Context.of(dims, *known, box=Box(bounds)).simplify_condition(condition)

    def _range(
        self, dim: Dim, bounds: Mapping[Symbol, Iterable[Expr]], base: Context, condition: Condition
    ) -> tuple[ReadRange, Condition]:
        symbol = primed(dim.symbol)
        lows, highs = [self.reader.box.lo(dim.symbol)], [self.reader.box.hi(dim.symbol)]
        for bound in bounds[symbol]:
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
        return ReadRange(dim.symbol, start, context.simplify(stop - start)), condition


def _is_bound(expr: Expr, symbol: Symbol) -> bool:
    factor = expr.coefficient(symbol)
    return factor != 0 and symbol not in (expr - factor * var(symbol)).symbols()
