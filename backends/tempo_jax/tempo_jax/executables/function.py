"""One function as an executable, found on disk or compiled when it is first called, and what a call of it needs."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tempo.backends import Submit
from tempo.waiting import collector_paused, waiting
from tempo_jax.checks import ErrorWord
from tempo_jax.executables import cache, malloc
from tempo_jax.executables.recall import Identity, is_seen_through, is_watched, keep, kinds_of, may_be_kept, recalled

Array = Any
Scope = Callable[[], AbstractContextManager[Any]]


class Meter:
    """Looks at every call of a segment while it measures."""

    def __init__(self) -> None:
        self.measures = False
        self._peak = self._before = 0

    def measured_peak(self, work: Callable[[], Any]) -> int:
        """The bytes that `work` allocates and that live at once, at most."""
        self._before, self._peak, self.measures = _live(), 0, True
        try:
            work()
        finally:
            self.measures = False
        return self._peak

    def look(self, executable: Any) -> None:
        """Before a call of it: its arguments are alive, and what it donates makes room."""
        self._peak = max(self._peak, _live() - self._before + sum(needs(executable)))


def needs(executable: Any) -> tuple[int, int]:
    """The bytes that a call of it needs for itself, and those of new arrays that it returns, by XLA."""
    found = executable.memory_analysis()
    return found.temp_size_in_bytes, found.output_size_in_bytes - found.alias_size_in_bytes


def _live() -> int:
    """On one device, of arrays that lie on several."""
    return sum(_bytes_here(array) for array in jax.live_arrays())


def _bytes_here(array: Array) -> int:
    return math.prod(array.sharding.shard_shape(array.shape)) * array.dtype.itemsize


@dataclass(frozen=True)
class Calls:
    """How executables of a segment are called: within `scopes`, looked at by `meter`. `waits`: a call returns when its
    results are there, so that it is this call that fails where they do not fit. `made_for`: the platform that they are
    lowered for, too, where it is not the one that they run on. `identity`: by which those of earlier processes are
    found, where they may be. `options`: XLA's, of what is not `jax.jit`'s, which refuses them where it is traced."""

    scopes: tuple[Scope, ...]
    meter: Meter
    waits: bool = False
    made_for: str | None = None
    identity: Identity | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def entered(self, *more: Scope) -> ExitStack:
        with ExitStack() as stack:
            for scope in (*self.scopes, *more):
                stack.enter_context(scope())
            return stack.pop_all()


class JittedFunction:
    """One function, run as an executable for arguments of one kind, and as a `jax.jit` function for all others, on a
    mesh and on devices. Where indices are checked its last result is the error word (`tempo_jax.checks`), which is
    waited for."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        word: ErrorWord | None,
        calls: Calls,
        donated: tuple[int, ...] = (),
        own: str | None = None,
    ) -> None:
        """`name` is shown, `own` is JAX's, where the function has no name. `donated`: the numbers of arguments."""
        self._plain, self._own, self._donated = function, own or function.__name__, donated
        self._name, self._word, self._calls = name, word, calls
        self._run: Callable[..., Any] | None = None
        self._called = False
        self._described: tuple[Any, ...] = ()
        self._kinds: tuple[str, ...] | None = None
        self._turn = threading.Lock()
        self._making: Callable[[], None] | None = None

    def __call__(self, *arguments: Any) -> Any:
        calls = self._calls
        if calls.meter.measures:
            with calls.entered():
                calls.meter.look(self._executable(arguments))
        if self._called and not calls.scopes and not calls.waits:
            return self._checked(self._results(arguments))
        with calls.entered():
            if calls.made_for and not self._called:
                self.function.trace(*arguments).lower(lowering_platforms=(calls.made_for,))
            results = self._waited(arguments) if self._called else self._first(arguments)
        self._called = True
        return self._checked(results)

    @cached_property
    def function(self) -> Any:
        return self._jit()

    def _jit(self) -> Any:
        """Another one to JAX, which lets go of what it has traced of it when it is gone."""
        function: Any = partial(self._plain)
        function.__name__ = self._own  # the executable's, too
        return jax.jit(function, donate_argnums=self._donated)

    @property
    def was_called(self) -> bool:
        return self._called

    def needs(self, arguments: tuple[Any, ...]) -> tuple[int, int]:
        """Of a call like the first one, or of one with these arguments."""
        return needs(self._executable(self._described if self._called else arguments))

    @property
    def module(self) -> str:
        """XLA's name of it."""
        return f"jit_{self._own}"

    def text(self) -> str:
        """The instructions that XLA has made of it, once it was called."""
        with self._calls.entered(cache.kept):
            found: str = self._executable(self._described).as_text()
        return found

    def _executable(self, arguments: tuple[Any, ...]) -> Any:
        """For these arguments, which may be descriptions; a call like that finds it."""
        if not self._called:
            self.make(arguments)
        made = self._run
        if made is None or made is self.function or self._kinds != kinds_of(arguments):
            return self.function.lower(*arguments).compile()
        return made

    # -- compiling ---------------------------------------------------------------------------------------------------

    def make(self, arguments: tuple[Any, ...], submit: Submit | None = None) -> None:
        """What a call with arguments like these runs; they may be descriptions. `submit` does the work, if any, and
        who calls waits for it; without it, it is done here, unless `jax.jit` is to do it when it is called."""
        kinds = kinds_of(arguments)
        with self._turn:
            if self._kinds != kinds:
                self._described, self._run = jax.tree.map(_description, arguments), None
                self._kinds = self._making = None
                self._making = self._begun(kinds, arguments, submit)
                self._kinds = kinds
            wait = self._making
        if wait is not None and submit is None:
            wait()

    @collector_paused()
    def _lowered(self, function: Any) -> jax.stages.Lowered:
        lowered: jax.stages.Lowered = function.lower(*self._described)
        return lowered

    def _begun(
        self, kinds: tuple[str, ...], arguments: tuple[Any, ...], submit: Submit | None
    ) -> Callable[[], None] | None:
        """Gives what waits for it, where there is anything to wait for."""
        identity = self._calls.identity
        if identity is None or is_seen_through(arguments):
            if submit is None:
                return None
            return submit(partial(self._compile, kinds, [self._lowered(self.function)]))
        file = identity.file(f"{self._name} {self.module}", arguments)
        found = None if file is None else recalled(file, identity.device)
        if found is not None:
            malloc.trim()
            self._run = _with_memory(found)
            return None
        function = self._jit()
        lowered = [self._lowered(function)]  # as the call will
        file = file if may_be_kept(lowered[0]) else None
        if submit is not None:
            return submit(partial(self._compile, kinds, lowered, file, is_run=True))
        self._run = self._compiled(lowered, file, self._calls.options)
        return None

    def _compile(
        self, kinds: tuple[str, ...], lowered: list[jax.stages.Lowered], file: Path | None = None, is_run: bool = False
    ) -> None:
        """In another thread. It `is_run`, unless another call has come first, or `jax.jit` finds it when it is called.
        After an error the next call tries again."""
        try:
            made = self._compiled(lowered, file, self._calls.options if is_run else {})
        except BaseException:
            with self._turn:
                if self._kinds == kinds:
                    self._kinds = self._making = None
            raise
        with self._turn:
            if is_run and self._kinds == kinds and self._run is None:
                self._run = made

    def _compiled(self, lowered: list[jax.stages.Lowered], file: Path | None, options: Mapping[str, str]) -> Any:
        """What is lowered is let go of before the heap is trimmed."""
        is_own = cache.off_since()
        with self._calls.entered(*(() if file else (cache.kept,))), self._compiling():
            made = lowered.pop().compile(dict(options))
            if file is not None and is_own():
                keep(file, made)
        return _with_memory(made)

    def _first(self, arguments: tuple[Any, ...]) -> Any:
        self.make(arguments)
        if self._run is not None:
            return self._waited(arguments)
        self._run = self.function
        with self._compiling(), cache.kept():
            return self._waited(arguments)

    @contextmanager
    def _compiling(self) -> Iterator[None]:
        with waiting(f"XLA compiles {self._name}"):
            yield
        malloc.trim()

    def _results(self, arguments: tuple[Any, ...]) -> Any:
        """An executable is for arrays of one shape each, and for none of JAX's tracers; `jax.jit` is for all, and runs
        a function as JAX's settings say that somebody watches."""
        run = self._run  # once: another thread may go on to the other
        if run is not None and run is self.function:
            return run(*arguments)
        if run is not None and not is_watched():
            try:
                return run(*arguments)
            except TypeError:
                pass
        self._run = self.function
        with cache.kept():
            return self.function(*arguments)

    def _checked(self, results: Any) -> Any:
        """Raises `IndexOutOfRangeError` for what an error word says."""
        if self._word is None:
            return results
        self._word.check(np.asarray(results[-1]))
        return results[:-1]

    def _waited(self, arguments: tuple[Any, ...]) -> Any:
        """What it returns, there if need be. Which of XLA's libraries finds no memory decides what it says of that."""
        if not self._calls.waits:
            return self._results(arguments)
        try:
            return jax.block_until_ready(self._results(arguments))
        except jax.errors.JaxRuntimeError as error:
            raise MemoryError(str(error)) from error


def _with_memory(executable: Any) -> Any:
    """One that finds the memory of its last call."""
    malloc.keep(needs(executable)[0])
    return executable


def _description(argument: Any) -> Any:
    """Without its elements."""
    if not isinstance(argument, np.ndarray | jax.Array):
        return argument
    is_weak = getattr(argument, "weak_type", False)
    return jax.ShapeDtypeStruct(argument.shape, argument.dtype, weak_type=is_weak)
