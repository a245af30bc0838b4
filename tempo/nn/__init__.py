"""Neural networks, written in the language: layers are functions over recurrent tensors that declare parameters.

Everything here uses the public API alone. A layer declares its parameters when it is made, in the program that is open;
`dims` are those along which they vary: `(i,)` for parameters that training updates over iterations `i`.

>>> import tempo as tp
>>> with tp.Program("train") as program:
...     i = tp.dim("i")
...     net = tp.nn.MLP((4, 64, 2), name="net", dims=(i,))
>>> {name: tensor.shape for name, tensor in net.parameters().items()}
{'net.0.weight': (4, 64), 'net.0.bias': (64,), 'net.1.weight': (64, 2), 'net.1.bias': (2,)}
"""

from tempo.nn import init
from tempo.nn.attention import MultiHeadAttention, alibi, attention
from tempo.nn.layers import GRU, LSTM, MLP, RNN, Embedding, LayerNorm, Linear, Module, RMSNorm

__all__ = [
    "GRU",
    "LSTM",
    "MLP",
    "RNN",
    "Embedding",
    "LayerNorm",
    "Linear",
    "Module",
    "MultiHeadAttention",
    "RMSNorm",
    "alibi",
    "attention",
    "init",
]
