"""What learning needs: weights as parameters of the program, and how likely texts are under them.

>>> import tempo as tp
>>> config = tp.llm.Config({"model_type": "llama", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16,
...                         "num_hidden_layers": 2, "num_attention_heads": 2, "tie_word_embeddings": True})
>>> family = tp.llm.read_family(config)
>>> with tp.Program("train") as program:
...     i, b, l, t = tp.dims("i b l t")  # iterations, rows, layers, positions
...     token = tp.stream_input("token", (), (i, b, t), tp.int32)
...     w = tp.llm.parameters(family, l, over=(i,))
...     logprob = tp.llm.logprobs(family, token, tp.llm.Dims(l, t, b, given=True, over=(i,)), w)
...     loss = -logprob[i, 0 : b.size, 1 : t.size].mean()
...     tp.optim.AdamW(1e-3, dim=i).minimize(loss, w)
...     tp.output("loss", loss)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tempo as tp
from tempo.llm.blocks import Dims, Weights
from tempo.llm.families import Family
from tempo.llm.weights import along


def parameters(
    family: Family, l: tp.Dim, *, over: Sequence[tp.Dim] = (), dtype: str = "float32", deviation: float = 0.02
) -> dict[str, Any]:
    """The weights of a family as the open program's parameters, by name; `over`: the dims of iterations.

    They begin as the state that a run is given (`stored.arrays()` of a checkpoint), else at random:
    matrices normal with the standard deviation, scales of norms such that they do nothing, biases 0.
    Source of the deviation: Radford et al. 2018, section 4.1.
    """
    weights = family.weights()
    varying = along(weights, family.sizes, l)

    def start(name: str) -> Any:
        if len(weights[name].shape) > 1:
            return tp.nn.init.normal(deviation)
        return 0.0 if name.endswith("_bias") else family.neutral

    return {
        name: tp.parameter(name, weight.shape, init=start(name), dims=(*over, *varying[name]), dtype=dtype)
        for name, weight in weights.items()
    }


def logprobs(family: Family, token: tp.RecurrentTensor, dims: Dims, w: Weights) -> tp.RecurrentTensor:
    """The natural logarithm of each token's probability, given those before it; 0 of the first. float32 over
    `(*dims.outer, t)`.

    Texts stand at the left end of `token`: nothing of them sees what follows.
    """
    t = dims.t
    logits = family.logits(token, dims, w)
    logprob = tp.recurrent("logprob", (), (*dims.outer, t))
    logprob[(*dims.outer, 0)] = 0.0
    following = token.at(**{t.name: t + 1})
    logprob[(*dims.outer, t + 1)] = tp.log_softmax(logits.astype(tp.float32), axis=-1).spatial[following]
    return logprob
