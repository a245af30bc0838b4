"""What users touch: programs, dims, recurrent tensors, definitions by cases, host calls, random draws."""

from tempo.language import functions, linalg, random
from tempo.language.conversion import as_tensor, constant
from tempo.language.definitions import ParameterSpec, cases, parameter, recurrent
from tempo.language.functions import *  # noqa: F403 - the list of names is that module's
from tempo.language.gradients import custom_gradient, grad, stop_gradient
from tempo.language.indexing.expression import Dim, IndexCondition, IndexExpression
from tempo.language.methods import Methods as _Methods
from tempo.language.outside import backend_call, host_call, input, output, sink, stop_when, stream_input
from tempo.language.program import Program, dim, dims
from tempo.language.tensor import RecurrentTensor

__all__ = [
    "Program", "dim", "dims", "Dim", "IndexExpression", "IndexCondition",
    "RecurrentTensor", "as_tensor", "constant", "input", "stream_input", "output",
    "recurrent", "parameter", "ParameterSpec", "cases", "host_call", "backend_call", "sink", "stop_when", "random",
    "linalg", "grad", "stop_gradient", "custom_gradient",
    *functions.__all__,
]  # fmt: skip

# Methods are functions of tensors, so the class of tensors is there first.
for _name, _member in vars(_Methods).items():
    if callable(_member) or isinstance(_member, property):
        setattr(RecurrentTensor, _name, _member)
