"""Names that other libraries have and this one has not: what to write instead."""

from __future__ import annotations

from collections.abc import Iterable

from tempo.errors import meant

_RENAMED = {
    "cat": "tp.concatenate", "concat": "tp.concatenate", "unsqueeze": "tp.expand_dims", "permute": "tp.transpose",
    "view": "tp.reshape", "clamp": "tp.clip", "mm": "tp.matmul", "bmm": "tp.matmul", "pow": "tp.power",
    "mul": "tp.multiply", "sub": "tp.subtract", "div": "tp.divide", "true_divide": "tp.divide", "neg": "tp.negative",
    "remainder": "tp.mod", "fmod": "tp.mod", "tensor": "tp.constant", "array": "tp.constant", "asarray": "tp.constant",
    "from_numpy": "tp.constant", "empty": "tp.zeros", "empty_like": "tp.zeros_like", "expand": "tp.broadcast_to",
    "index_select": "tp.take", "chunk": "tp.split", "swish": "tp.silu", "expit": "tp.sigmoid", "fabs": "tp.abs",
    "eq": "tp.equal", "ne": "tp.not_equal", "lt": "tp.less", "le": "tp.less_equal", "gt": "tp.greater",
    "ge": "tp.greater_equal", "acos": "tp.arccos", "asin": "tp.arcsin", "atan": "tp.arctan", "atan2": "tp.arctan2",
    "swapdims": "tp.swapaxes", "detach": "tp.stop_gradient", "jit": "tp.compile", "topk": "tp.top_k",
}  # fmt: skip
_OTHERWISE = {
    "masked_fill": "write tp.where(mask, value, x)",
    "hstack": "write tp.concatenate(xs, axis=1)",
    "vstack": "write tp.concatenate(xs, axis=0)",
    "scan": "declare a dim and a recurrent tensor: h[t + 1] = f(h, x)",
    "vmap": "declare a dim: what reads along it is computed at every point",
    "cond": "choose by data with tp.where, by dims with tp.cases",
    "backward": "write tp.grad(loss, wrt)",
    "grad": "write tp.grad(loss, wrt)",
    "item": "make it an output and run the program",
    "numpy": "make it an output and run the program",
    "tolist": "make it an output and run the program",
    "to": "write x.astype(dtype); a device is chosen by tp.compile(..., device=...)",
    "size": "write x.shape for the axes, t.size for a dim",
    "diag": "write tp.eye(n) * x, or tp.diagonal(x)",
    "nonzero": "its shape depends on data: select with tp.where(mask, a, b)",
    "unique": "its shape depends on data: select with tp.where(mask, a, b)",
    "median": "take the middle of tp.sort(x)",
    "norm": "write tp.sqrt((x * x).sum(axis))",
    "half": "write x.astype(tp.float16)",
    "float": "write x.astype(tp.float32)",
    "double": "write x.astype(tp.float64)",
    "long": "write x.astype(tp.int64)",
    "int": "write x.astype(tp.int32)",
    "complex64": "there are no complex numbers: keep real and imaginary parts as two tensors",
    "complex128": "there are no complex numbers: keep real and imaginary parts as two tensors",
}


class UnknownName(AttributeError):
    """An attribute that is not there; the hint is looked for when the message is read, as `hasattr` reads none."""

    def __init__(self, message: str, wanted: str, known: Iterable[str], owner: str) -> None:
        super().__init__(message)
        self._wanted, self._known, self._owner = wanted, known, owner

    def __str__(self) -> str:
        return f"{self.args[0]}{_hint(self._wanted, self._known, self._owner)}"


def _hint(wanted: str, known: Iterable[str], owner: str) -> str:
    if wanted in _RENAMED:
        return f"\n  write {_RENAMED[wanted]}"
    if wanted in _OTHERWISE:
        return f"\n  {_OTHERWISE[wanted]}"
    if wanted.endswith("_"):
        return "\n  a tensor does not change in place: name the new one"
    near = meant(wanted, (name for name in known if not name.startswith("_")))
    return f"\n  did you mean {owner}.{near}?" if near else ""
