"""A program as a function of JAX's, for `jax.jit`, `jax.vmap`, `jax.grad` and `jax.vjp`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from tempo.backends.inside import Argument, Options, Program, ReverseMode, refuse_second_order
from tempo.errors import DTypeError, InputError, UnsupportedError, called_through
from tempo_jax.backend import JaxBackend
from tempo_jax.precision import WIDE

Array = Any
Arrays = dict[str, Array]
_THROUGH = ("tempo_jax", "jax")


def function(
    program: Program,
    outputs: str | Sequence[str] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    options: Options | None = None,
) -> TempoFunction:
    """The program as a function of arrays, compiled with its reverse mode.

    `f(parameters, x=..., seed=0)`: inputs by name, arrays with the dims in front, as `run(...)` takes them; parameters
    (`tp.parameter` without cases) in a mapping by name, in front, or by keyword; `seed`, that of all draws, an integer
    or an integer scalar, which may be traced. `f.init(seed)` gives the parameters at the start. `outputs` is the name
    of one, which a call then returns, or several, of which it returns a dict by name; None: all of them, the array
    where there is one. `sizes` gives sizes of dims that no input carries.

    It works under `jax.jit`, which takes its compiled loops into the caller's executable; under `jax.vmap`, which makes
    the new axis one of all arrays in them (one loop for the batch, not one after the other); and under `jax.grad` and
    `jax.vjp`, once, with respect to what has a floating dtype. Where arrays are traced nothing can look at them:
    indices out of range are clamped.

    Raises `UnsupportedError`, with the line, for parameters with cases, calls of the host, sinks, stops, streamed
    inputs, and lengths of rows that the program computes, and for options that look at values (`check_finite`) or pad
    them (`buckets`); what `tp.compile` raises.

    >>> import tempo as tp
    >>> with tp.Program("line") as program:
    ...     b = tp.dim("b")
    ...     x, w = tp.input("x", (3,), (b,)), tp.parameter("w", (3,), init=[1.0, 2.0, 3.0])
    ...     tp.output("loss", (x[0 : b.size] * w).sum())
    >>> line = function(program)
    >>> loss, gradients = jax.jit(jax.value_and_grad(line))(line.init(), x=jnp.ones((2, 3)))
    >>> float(loss), gradients["w"].tolist()
    (12.0, [2.0, 2.0, 2.0])
    """
    with called_through(*_THROUGH):
        for name in ("check_finite", "buckets"):
            if options is not None and getattr(options, name, None):
                raise UnsupportedError(
                    f"tp.Options({name}=...) looks at arrays on the host, and JAX's may be traced",
                    hint="leave it out; jax.config has jax_debug_nans, and jax.jit compiles for each shape",
                )
        return TempoFunction(ReverseMode(program, JaxBackend(), outputs, sizes, options), options)


class TempoFunction:
    """What `tempo_jax.function` returns."""

    def __init__(self, reverse: ReverseMode, options: Options | None) -> None:
        self._reverse, self._options = reverse, options
        self._called = _differentiable(reverse)
        self.__name__ = reverse.program.name

    def __reduce__(self) -> tuple[Any, ...]:
        return TempoFunction, (self._reverse, self._options)

    def __repr__(self) -> str:
        given, made = (", ".join(names) for names in (self._reverse.arguments, self._reverse.outputs))
        return f"TempoFunction({self.__name__!r}: {given} -> {made})"

    def init(self, seed: int = 0) -> Arrays:
        """The parameters at their initial values, by name, with their dims in front."""
        with called_through(*_THROUGH):
            made = self._reverse.initial(seed)
            return {name: self._array(self._reverse.arguments[name], value) for name, value in made.items()}

    def __call__(self, parameters: Mapping[str, Any] | None = None, /, *, seed: Any = 0, **given: Any) -> Any:
        """The outputs. Raises what `run(...)` does."""
        with called_through(*_THROUGH):
            named = _with(parameters, given)
            self._reverse.check_names(named)
            arrays = {name: self._array(each, named[name]) for name, each in self._reverse.arguments.items()}
            seeded = _seed(seed)
            if self._options is not None and self._options.checks is True and _is_traced((arrays, seeded)):
                raise UnsupportedError(
                    "indices are checked, tp.Options(checks=True), where arrays are traced and have no values",
                    hint="leave it out: indices out of range are then clamped",
                )
            outputs = self._called(arrays, seeded)
        return outputs[self._reverse.outputs[0]] if self._reverse.is_single else outputs

    def _array(self, argument: Argument, value: Any) -> Array:
        """As JAX's, of the dtype that is declared; a cast is differentiated, too."""
        if argument.dtype in WIDE and not jax.config.jax_enable_x64:
            raise DTypeError(
                f"{argument.name!r} is of {argument.dtype}, and JAX's types of 64 bits are off",
                hint='switch them on: jax.config.update("jax_enable_x64", True)',
            )
        if not isinstance(value, jax.Array):
            return jnp.asarray(self._reverse.array(argument.name, value))
        if value.dtype != argument.dtype:
            self._reverse.check_kind(argument.name, str(value.dtype))
        return value.astype(argument.dtype)


class _Kept(NamedTuple):
    """What the way back needs, and, as the structure of a tree, for which gradients and sizes that is."""

    given: Arrays
    residuals: Arrays
    seed: Array
    known: _Static


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Static:
    wanted: frozenset[str]
    sizes: tuple[tuple[str, int], ...]


def _differentiable(reverse: ReverseMode) -> Any:
    """The function of arguments by name and a seed."""

    def forward(arrays: Any, seed: Any) -> tuple[Arrays, _Kept]:
        wanted = frozenset(name for name, each in arrays.items() if each.perturbed and reverse.arguments[name].is_float)
        given, seeded = {name: each.value for name, each in arrays.items()}, seed.value
        made = reverse.forward(wanted, given, seeded, not _is_traced((given, seeded)))
        passed = {name: given[name] for name in reverse.passed_on(wanted)}
        static = _Static(wanted, tuple(made.sizes.items()))
        return dict(made.outputs), _Kept(passed, dict(made.residuals), seeded, static)

    def backward(kept: _Kept, cotangents: Arrays) -> tuple[Any, None]:
        whole = {name: _whole(cotangents[name]) for name in reverse.float_outputs}
        gradients = _once(reverse, kept.known, kept.given, kept.residuals, kept.seed, whole)
        return {name: gradients.get(name) for name in reverse.arguments}, None

    @jax.custom_vjp
    def called(arrays: Arrays, seed: Array) -> Arrays:
        return dict(reverse.forward(frozenset(), arrays, seed, not _is_traced((arrays, seed))).outputs)

    called.defvjp(forward, backward, symbolic_zeros=True)
    return called


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _once(
    reverse: ReverseMode, known: _Static, given: Arrays, residuals: Arrays, seed: Array, cotangents: Arrays
) -> Arrays:
    """The gradients, which are not differentiated again."""
    traced = _is_traced((given, residuals, seed, cotangents))
    return reverse.backward(known.wanted, given, residuals, cotangents, dict(known.sizes), seed, not traced)


def _refused(*arguments: Any) -> Any:
    with called_through(*_THROUGH):
        refuse_second_order()


_once.defvjp(_refused, _refused)


def _with(parameters: Mapping[str, Any] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    if parameters is None:
        return dict(given)
    if not isinstance(parameters, Mapping):
        raise InputError(
            f"parameters are a {type(parameters).__name__}, and must map names to arrays",
            hint="write f(f.init(), x=...)",
        )
    for name in parameters:
        if name in given:
            raise InputError(f"{name!r} is given twice: by keyword, and among the parameters")
    return {**parameters, **given}


def _seed(seed: Any) -> Array:
    if isinstance(seed, jax.Array) and seed.ndim == 0 and jnp.issubdtype(seed.dtype, jnp.integer):
        return seed.astype("uint32")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise InputError(
            f"seed must be an integer from 0 to 2**32 - 1, or an integer scalar of JAX's, not {seed!r}",
            hint="of a key of jax.random, draw one: jax.random.bits(key)",
        )
    return jnp.asarray(np.uint32(seed))


def _is_traced(tree: Any) -> bool:
    return any(isinstance(each, jax.core.Tracer) for each in jax.tree.leaves(tree))


def _whole(cotangent: Any) -> Array:
    """With zeros where nothing reads an output."""
    return jnp.zeros(cotangent.shape, cotangent.dtype) if isinstance(cotangent, SymbolicZero) else cotangent


__all__ = ["TempoFunction", "function"]
