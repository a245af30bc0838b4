"""A program as a module of PyTorch's, differentiated by `torch.autograd`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from tempo.backends.inside import Forward, Options, Program, ReverseMode, refuse_second_order
from tempo.errors import InputError, ProgramError, called_through
from tempo_torch.arrays import NAMES, TORCH_DTYPES, from_host
from tempo_torch.backend import TorchBackend

_THROUGH = ("tempo_torch", "torch")


def module(
    program: Program,
    outputs: str | Sequence[str] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    options: Options | None = None,
    device: str | torch.device | None = None,
) -> TempoModule:
    """The program as an `nn.Module`, compiled with its reverse mode.

    Its parameters (`tp.parameter` without cases) are the module's, named as in the program (`lstm.w` is that of a
    submodule), with the dims in front; they begin at their initial values, drawn with seed 0. The module is called with
    the inputs by name, tensors with the dims in front, as `run(...)` is, and `seed=`, that of all draws. `outputs` is
    the name of one, which a call then returns, or several, of which it returns a dict by name; None: all of them, the
    tensor where there is one. They are differentiable once, with respect to inputs and parameters of floating dtypes.

    `sizes` gives sizes of dims that no input carries. The module runs on `device` ("cpu", "cuda"); it may be moved, and
    runs where its parameters are, or its inputs. Tensors are neither copied nor taken to the host.

    Raises `UnsupportedError`, with the line, for parameters with cases, calls of the host, sinks, stops, streamed
    inputs, and lengths of rows that the program computes; `ProgramError` for names that PyTorch does not take; what
    `tp.compile` raises.

    >>> import tempo as tp
    >>> with tp.Program("line") as program:
    ...     b = tp.dim("b")
    ...     x, w = tp.input("x", (3,), (b,)), tp.parameter("w", (3,), init=[1.0, 2.0, 3.0])
    ...     tp.output("y", (x * w).sum())
    >>> line = module(program)
    >>> y = line(x=torch.ones(2, 3))
    >>> y.sum().backward()
    >>> y, line.w.grad
    (tensor([6., 6.], grad_fn=<_CalledBackward>), tensor([2., 2., 2.]))
    """
    with called_through(*_THROUGH):
        where = None if device is None else torch.device(device)
        reverse = ReverseMode(program, _backend(where), outputs, sizes, options)
        return TempoModule(reverse, where)


class TempoModule(nn.Module):
    """What `tempo_torch.module` returns."""

    def __init__(self, reverse: ReverseMode, device: torch.device | None) -> None:
        super().__init__()
        self._program, self._names = reverse.program.name, tuple(reverse.parameters)
        self._compiled = {reverse.backend.device.type: reverse}
        for name, value in reverse.initial().items():
            _register(self, name, from_host(value, torch.device("cpu")).clone(), device)

    def forward(self, *, seed: int = 0, **inputs: Any) -> Any:
        """The outputs. Raises what `run(...)` does."""
        with called_through(*_THROUGH):
            held = dict(self.named_parameters(remove_duplicate=False)) | dict(self.named_buffers())
            given = {**inputs, **{name: held[name] for name in self._names}}
            reverse = self._on(given)
            for name in self._names:
                if name in inputs:
                    raise InputError(
                        f"{name!r} is a parameter, which the module holds", hint="set it: module.load_state_dict"
                    )
            reverse.check_names(given)
            tensors = {name: _tensor(reverse, name, value) for name, value in given.items()}
            outputs = _called(reverse, tensors, seed)
        return outputs[reverse.outputs[0]] if reverse.is_single else outputs

    def extra_repr(self) -> str:
        return f"{self._program!r}"

    def _on(self, given: Mapping[str, Any]) -> ReverseMode:
        """Compiled for the device that the parameters are on, else that of the inputs."""
        tensors = [given[name] for name in self._names] or [
            each for each in given.values() if isinstance(each, torch.Tensor)
        ]
        first = next(iter(self._compiled.values()))
        kind = tensors[0].device.type if tensors else first.backend.device.type
        if kind not in self._compiled:
            self._compiled[kind] = first.on(TorchBackend(kind))
        return self._compiled[kind]


def _backend(device: torch.device | None) -> TorchBackend:
    return TorchBackend() if device is None else TorchBackend(device.type)


def _register(module: nn.Module, name: str, value: torch.Tensor, device: torch.device | None) -> None:
    """Raises `ProgramError` for a name that is not to be had."""
    *path, last = name.split(".")
    try:
        for part in path:
            if part not in module._modules:
                module.add_module(part, nn.Module())
            module = module.get_submodule(part)
        value = value.to(device)
        if value.is_floating_point():
            module.register_parameter(last, nn.Parameter(value))
        else:
            module.register_buffer(last, value)
    except (KeyError, AttributeError) as error:
        raise ProgramError(
            f"the parameter {name!r} cannot be one of a module: {error}", hint="give it another name in the program"
        ) from error


def _tensor(reverse: ReverseMode, name: str, value: Any) -> Any:
    """An argument as a tensor of its dtype; a cast is differentiated, too."""
    dtype = reverse.arguments[name].dtype
    if not isinstance(value, torch.Tensor):
        return value
    if (given := NAMES.get(value.dtype)) is not None and given != dtype:
        reverse.check_kind(name, given)
        if reverse.arguments[name].is_float:
            return value.to(TORCH_DTYPES[dtype])
    return value


@dataclass
class _Call:
    """What a call hands on to the way back, beside tensors that autograd keeps; `saved` are their names."""

    reverse: ReverseMode
    names: tuple[str, ...]
    seed: int
    rest: dict[str, Any]
    wanted: frozenset[str] = frozenset()
    sizes: Mapping[str, int] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    residuals: tuple[str, ...] = ()


def _called(reverse: ReverseMode, given: Mapping[str, Any], seed: int) -> dict[str, torch.Tensor]:
    tensors = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
    rest = {name: value for name, value in given.items() if name not in tensors}
    call = _Call(reverse, tuple(tensors), seed, rest)
    if not torch.is_grad_enabled() or not any(each.requires_grad for each in tensors.values()):
        return dict(reverse.forward(frozenset(), given, seed).outputs)
    return dict(zip(reverse.outputs, _Called.apply(call, *tensors.values()), strict=True))


class _Called(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = dict(zip(call.names, tensors, strict=True))
        floats = (name for name, wants in zip(call.names, ctx.needs_input_grad[1:]) if wants)
        call.wanted = frozenset(name for name in floats if call.reverse.arguments[name].is_float)
        made: Forward = call.reverse.forward(call.wanted, {**given, **call.rest}, call.seed)
        passed = call.reverse.passed_on(call.wanted)
        call.given = tuple(name for name in call.names if name in passed)
        call.residuals, call.sizes = tuple(made.residuals), made.sizes
        outputs = tuple(made.outputs[name] for name in call.reverse.outputs)
        floating = set(call.reverse.float_outputs)
        ctx.mark_non_differentiable(
            *(each for name, each in zip(call.reverse.outputs, outputs) if name not in floating)
        )
        ctx.save_for_backward(*(given[name] for name in call.given), *made.residuals.values())
        ctx.call = call
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        call: _Call = ctx.call
        found = _Gradients.apply(call, *ctx.saved_tensors, *cotangents)
        by_name = dict(zip(sorted(call.wanted), found, strict=True))
        return (None, *map(by_name.get, call.names))


class _Gradients(torch.autograd.Function):
    """The way back, which is not differentiated again."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, last = len(call.given), len(call.given) + len(call.residuals)
        given = dict(zip(call.given, tensors[:first], strict=True))
        residuals = dict(zip(call.residuals, tensors[first:last], strict=True))
        cotangents = dict(zip(call.reverse.outputs, tensors[last:], strict=True))
        with called_through(*_THROUGH):
            made = call.reverse.backward(
                call.wanted, {**call.rest, **given}, residuals, cotangents, call.sizes, call.seed
            )
        return tuple(made[name] for name in sorted(call.wanted))

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        with called_through(*_THROUGH):
            refuse_second_order()


__all__ = ["TempoModule", "module"]
