"""What users touch: programs, dims, recurrent tensors, definitions by cases, host calls, random draws."""

from tempo.language import definitions as _definitions
from tempo.language import functions, linalg, random
from tempo.language import tensor as _tensor
from tempo.language.conversion import as_tensor, constant
from tempo.language.definitions import cases, recurrent
from tempo.language.functions import *  # noqa: F403 - the list of names is that module's
from tempo.language.gradients import custom_gradient, grad, stop_gradient
from tempo.language.host import backend_call, host_call, sink
from tempo.language.indexing import spatial as _spatial
from tempo.language.indexing import temporal as _temporal
from tempo.language.indexing.expression import Dim, IndexCondition, IndexExpression
from tempo.language.inputs import input, output, stop_when, stream_input
from tempo.language.parameters import ParameterSpec, parameter
from tempo.language.program import Program, dim, dims
from tempo.language.tensor import RecurrentTensor

__all__ = [
    "Program", "dim", "dims", "Dim", "IndexExpression", "IndexCondition",
    "RecurrentTensor", "as_tensor", "constant", "input", "stream_input", "output",
    "recurrent", "parameter", "ParameterSpec", "cases", "host_call", "backend_call", "sink", "stop_when", "random",
    "linalg", "grad", "stop_gradient", "custom_gradient",
    *functions.__all__,
]  # fmt: skip

# What the methods of tensors call: it is made of tensors, so their class is there first.
vars(_tensor).update(functions=functions, definitions=_definitions, spatial=_spatial, temporal=_temporal)
