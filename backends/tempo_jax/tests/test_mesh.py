"""On a mesh of devices: what they exchange, as XLA's compiled text has it, and where arrays lie."""

from __future__ import annotations

import json
import math
import pickle
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from tempo_jax.executables import JittedFunction

import tempo as tp
from examples.ppo import Settings, loss, networks
from tempo.conformance.target import typical
from tests.unit.llm.models import VOCABULARY, make

pytestmark = pytest.mark.skipif(
    jax.default_backend() != "cpu" or len(jax.devices()) < 8, reason="needs a host that poses as eight devices"
)

# -- what compiled text says -------------------------------------------------------------------------------------------

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_EXCHANGES = re.compile(
    r" = (\(.*?\)|\S+) (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(?:-start)?\("
)
_CALLED = re.compile(r"(body|condition|calls|to_apply|\w+_computations?)=\{?((?:%[\w.\-]+(?:, )?)+)")
_ARRAY = re.compile(r"(\w+)\[[\d,]*\]")


@dataclass(frozen=True)
class Exchange:
    """A collective in compiled text, inside so many loops; `dtypes` has one for each array that it makes."""

    kind: str
    loops: int
    dtypes: tuple[str, ...]


def exchanges(hlo: str) -> list[Exchange]:
    """All that an executable does, whatever calls them where they are."""
    computations, entry, current = dict[str, list[str]](), "", list[str]()
    for line in hlo.splitlines():
        if header := _COMPUTATION.match(line):
            current = computations.setdefault(header[2], [])
            entry = header[2] if header[1] else entry
        else:
            current.append(line)

    def inside(name: str, loops: int) -> Iterator[Exchange]:
        for line in computations[name]:
            if made := _EXCHANGES.search(line):
                yield Exchange(made[2], loops, tuple(_ARRAY.findall(made[1])))
                continue  # what it calls adds two numbers up
            for attribute, names in _CALLED.findall(line):
                for called in re.findall(r"%([\w.\-]+)", names):
                    yield from inside(called, loops + (attribute in ("body", "condition")))

    return list(inside(entry, 0))


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The compiled text of every executable that is called, at its first call."""
    found, call = list[str](), JittedFunction.__call__

    def recorded(self: JittedFunction, *arguments: Any) -> Any:
        if not self.was_called:
            found.append(self.function.lower(*arguments).compile().as_text())
        return call(self, *arguments)

    monkeypatch.setattr(JittedFunction, "__call__", recorded)
    return found


def all_of(texts: list[str]) -> list[Exchange]:
    return [each for text in texts for each in exchanges(text)]


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def assert_near(found: Any, wanted: Any, tolerance: float = 1e-4) -> None:
    assert sorted(found) == sorted(wanted)
    for name in wanted:
        np.testing.assert_allclose(np.asarray(found[name]), np.asarray(wanted[name]), tolerance, tolerance)


def test_a_planted_exchange_is_counted_with_its_loops() -> None:
    mesh = jax.make_mesh((8,), ("data",))
    rows = NamedSharding(mesh, PartitionSpec("data"))

    def body(_: Any, carried: Any) -> Any:
        return jax.lax.fori_loop(0, 50, lambda _, x: jnp.sin(x + x.sum()), carried) + carried[3]

    def function(x: Any) -> Any:
        return jax.lax.fori_loop(0, 50, body, x).max()

    text = jax.jit(function, in_shardings=rows).lower(jnp.zeros(64)).compile().as_text()
    found = exchanges(text)
    assert Exchange("all-reduce", 2, ("f32",)) in found
    assert {each.loops for each in found} == {0, 1, 2}
    assert exchanges(jax.jit(function).lower(jnp.zeros(64)).compile().as_text()) == []


# -- a recurrent network -----------------------------------------------------------------------------------------------

WIDTH, ROWS, STEPS, ITERATIONS = 16, 8, 40, 30


def trained() -> tp.Program:
    """By gradient descent, over all rows and back through time in every iteration."""
    with tp.Program("trained") as program:
        i, b, t = tp.dims("i b t")
        x = tp.input("x", (WIDTH,), (b, t))
        learned = {
            name: tp.parameter(name, shape, init=normal(*shape, seed=seed, scale=0.1), dims=(i,))
            for seed, (name, shape) in enumerate({"w": (WIDTH, WIDTH), "u": (WIDTH, WIDTH), "c": (WIDTH,)}.items())
        }
        w, u, c = learned.values()
        h = tp.recurrent("h", (WIDTH,), (i, b, t))
        h[i, b, 0] = tp.tanh(x[b, 0] @ w + c)
        h[i, b, t + 1] = tp.tanh(x[b, t + 1] @ w + h[i, b, t] @ u + c)
        error = (h[i, 0 : b.size, t.size - 1] ** 2).mean()
        gradients = tp.grad(error, learned)
        for name, weight in learned.items():
            weight[i + 1] = weight - 0.1 * gradients[name]
        tp.output("error", error)
    return program


@pytest.mark.parametrize("devices", [2, 8])
def test_a_recurrent_network_adds_up_once_an_iteration(texts: list[str], devices: int) -> None:
    program, x = trained(), normal(ROWS, STEPS, WIDTH)
    run = tp.compile(program, "jax", mesh=tp.Mesh({"data": devices}), shard={"b": "data"})
    found = run(x=x, sizes={"i": ITERATIONS})
    exchanged = all_of(texts)
    assert {each.kind for each in exchanged} == {"all-reduce"}
    assert 1 <= sum(each.loops == 1 for each in exchanged) <= 2
    assert max(each.loops for each in exchanged) == 1, "none is inside t"
    assert_near(found, tp.compile(program, "numpy")(x=x, sizes={"i": ITERATIONS}))


# -- proximal policy optimization --------------------------------------------------------------------------------------

ACTING = Settings(environments=8, steps=16, iterations=3, epochs=2, minibatches=2, width=16)


def ppo(settings: Settings, within: bool) -> tp.Program:
    """Environments are the points of `n`; minibatches are some of the steps of each (`within`), or of all points."""
    environment = tp.rl.CartPole()
    with tp.Program("ppo") as program:
        i, e, m = tp.dims("i e m")
        n, t = tp.dim("n", settings.environments), tp.dim("t", settings.steps)
        policy, value = networks(settings, environment.observation[0], environment.actions, (i, e, m))
        old_policy, old_value = policy.at(e=0, m=0), value.at(e=0, m=0)

        def act(observation: tp.RecurrentTensor) -> tp.RecurrentTensor:
            return tp.rl.Categorical(old_policy(observation)).sample(dims=(i, n, t))

        seen = tp.rl.rollout(environment, act, (i, t), batch=n)
        estimate = old_value(seen.observation).spatial[..., 0]
        going_on = old_value(seen.following).spatial[..., 0]
        reward = seen.reward + settings.gamma * tp.where(seen.truncated, going_on, 0.0)
        last = going_on.at(t=t.size - 1)
        advantage = tp.rl.gae(reward, estimate, seen.done, t, settings.gamma, settings.decay, last)
        points = {
            "observation": seen.observation,
            "action": seen.action,
            "log_prob": tp.rl.Categorical(old_policy(seen.observation)).log_prob(seen.action),
            "advantage": advantage,
            "returns": advantage + estimate,
        }
        count = settings.steps if within else settings.steps * settings.environments
        size = count // settings.minibatches
        order = tp.random.permutation(count, dims=(i, e, n) if within else (i, e)).spatial[m * size : (m + 1) * size]
        steps = {name: x.at(t=slice(None)) for name, x in points.items()}
        if within:
            flat = {name: x.spatial[order].at(n=slice(None)) for name, x in steps.items()}
        else:
            rows = {name: x.at(n=slice(None)) for name, x in steps.items()}
            flat = {name: x.reshape((count, *x.shape[2:])).spatial[order] for name, x in rows.items()}
        batch = {name: tp.stop_gradient(x) for name, x in flat.items()}
        adam = tp.optim.Adam(settings.rate, epsilon=1e-5, dim=(i, e, m))
        learned = {**policy.parameters(), **value.parameters()}
        objective = loss(policy, value, batch, settings)
        adam.apply(learned, tp.optim.clip_by_global_norm(tp.grad(objective, learned), settings.max_norm))
        tp.output("loss", objective)
        tp.output("reward", seen.reward)
    return program


def sizes_of(settings: Settings) -> dict[str, int]:
    return {"i": settings.iterations, "e": settings.epochs, "m": settings.minibatches}


@pytest.mark.slow
def test_ppo_adds_up_three_times_for_each_minibatch(texts: list[str]) -> None:
    """The mean and the variance of advantages; and gradients, with the loss, all in one."""
    program, sizes = ppo(ACTING, within=True), sizes_of(ACTING)
    with warnings.catch_warnings():
        warnings.simplefilter("error", tp.GatherWarning)
        run = tp.compile(program, "jax", sizes=sizes, mesh=tp.Mesh({"data": 4}), shard={"n": "data"})
        found = run(seed=0)
    exchanged = all_of(texts)
    assert [(each.kind, each.loops) for each in exchanged] == [("all-reduce", 3)] * 3
    learned = 12  # weights and biases
    assert sorted(len(each.dtypes) >= learned for each in exchanged) == [False, False, True]
    assert_near(found, tp.compile(program, "jax", sizes=sizes)(seed=0), 1e-3)


@pytest.mark.slow
def test_a_permutation_of_all_points_is_warned_of() -> None:
    program, sizes = ppo(ACTING, within=False), sizes_of(ACTING)
    with pytest.warns(tp.GatherWarning) as caught:
        tp.compile(program, "jax", sizes=sizes, mesh=tp.Mesh({"data": 4}), shard={"n": "data"})(seed=0)
    mine = [each for each in caught if each.category is tp.GatherWarning]
    assert {each.filename for each in mine} == {__file__}
    lines = Path(__file__).read_text().splitlines()
    assert {lines[each.lineno - 1].strip() for each in mine} <= {
        "flat = {name: x.reshape((count, *x.shape[2:])).spatial[order] for name, x in rows.items()}",
        "rows = {name: x.at(n=slice(None)) for name, x in steps.items()}",
        "steps = {name: x.at(t=slice(None)) for name, x in points.items()}",
    }
    texts = [str(each.message) for each in mine]
    assert all(re.match(r"all-gather over data, \d+ B, (inside|outside)", text) for text in texts)
    observations = ACTING.environments * ACTING.steps * 4 * 4
    assert any(f" {observations} B" in text for text in texts)


# -- language models ---------------------------------------------------------------------------------------------------

LLAMA = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
}
GPT2 = {"n_embd": 32, "n_layer": 3, "n_head": 8, "n_positions": 128}
PROMPTS = [[1, 2, 3, 4, 5], [7, 8, 9]]
MESHES = [{"model": 2}, {"model": 4}, {"model": 8}, {"data": 2, "model": 4}]
OFTEN = [{"model": 2}, {"data": 2, "model": 4}]
TEMPLATE = "{% for message in messages %} w2 {{ message['content'] }} w3{% endfor %} w4"


def speaking(folder: Path, kind: str, **options: Any) -> Path:
    """A random model with a word for each token."""
    make(folder, kind, **options)
    tokenizers = pytest.importorskip("tokenizers")
    words = {f"w{number}": number for number in range(VOCABULARY)}
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    library.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    library.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speaking(tmp_path_factory.mktemp("llama"), "Llama", **LLAMA)


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speaking(tmp_path_factory.mktemp("gpt2"), "GPT2", **GPT2)


def assert_megatron(texts: list[str]) -> None:
    """Two all-reduces in the loop over layers, of the prompt and of each token; else only whether rows have ended."""
    inside = [each for each in all_of(texts) if each.loops == 2]
    assert [(each.kind, each.dtypes) for each in inside] == [("all-reduce", ("f32",))] * 2
    others = [each for each in all_of(texts) if each.kind != "all-reduce"]
    assert {(each.kind, each.dtypes) for each in others} <= {("all-gather", ("pred",))}
    assert all(each.loops in (1, 2) for each in all_of(texts))
    assert sum(each.kind == "all-reduce" for each in all_of(texts)) == 4


def tokens(model: tp.llm.Model, **settings: Any) -> list[tuple[int, ...]]:
    return [each.tokens for each in model.generate(PROMPTS, max_new_tokens=24, **settings)]


@pytest.mark.slow
@pytest.mark.parametrize("axes", typical(MESHES, OFTEN, pytest.mark.sweep), ids=str)
def test_megatrons_decoder(texts: list[str], llama: Path, axes: dict[str, int]) -> None:
    expected = tokens(tp.llm.load(llama, backend="jax"))
    assert all_of(texts) == []
    texts.clear()
    model = tp.llm.load(llama, backend="jax", mesh=tp.Mesh(axes))
    assert tokens(model) == expected
    assert_megatron(texts)


@pytest.mark.slow
@pytest.mark.parametrize("axes", typical(OFTEN, OFTEN[:1], pytest.mark.sweep), ids=str)
def test_matrices_of_8_bits(texts: list[str], llama: Path, axes: dict[str, int]) -> None:
    expected = tokens(tp.llm.load(llama, backend="jax", quantize="int8"))
    texts.clear()
    model = tp.llm.load(llama, backend="jax", quantize="int8", mesh=tp.Mesh(axes))
    assert tokens(model) == expected
    assert_megatron(texts)


@pytest.mark.slow
@pytest.mark.parametrize("axes", typical(OFTEN, OFTEN[:1], pytest.mark.sweep), ids=str)
def test_gpt2(texts: list[str], gpt2: Path, axes: dict[str, int]) -> None:
    expected = tokens(tp.llm.load(gpt2, backend="jax"))
    texts.clear()
    assert tokens(tp.llm.load(gpt2, backend="jax", mesh=tp.Mesh(axes))) == expected
    assert_megatron(texts)


@pytest.mark.slow
@pytest.mark.parametrize("family", typical(["llama", "gpt2"], ["llama"], pytest.mark.sweep))
def test_conversations_and_streams(family: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(family)
    one, many = (tp.llm.load(folder, backend="jax", mesh=mesh) for mesh in (None, tp.Mesh({"model": 4})))
    pieces = [list(model.stream("w5 w6 w7", max_new_tokens=8)) for model in (one, many)]
    assert pieces[0] == pieces[1]
    talks = [model.chat(max_new_tokens=5) for model in (one, many)]
    for text in ("w10 w11 w12", "w13", "w20 w21"):
        said = [talk.say(text) for talk in talks]
        assert said[0] == said[1]
    assert talks[1].kept == talks[0].kept > 0


@pytest.mark.slow
def test_scores(llama: Path) -> None:
    one, many = (tp.llm.load(llama, backend="jax", mesh=mesh) for mesh in (None, tp.Mesh({"data": 2, "model": 4})))
    for found, wanted in zip(many.score(PROMPTS), one.score(PROMPTS), strict=True):
        assert found.perplexity == pytest.approx(wanted.perplexity, rel=1e-4)


@pytest.mark.slow
def test_heads_that_devices_do_not_divide(tmp_path: Path) -> None:
    make(tmp_path, "Llama", **{**LLAMA, "num_key_value_heads": 2})
    with pytest.raises(tp.SizeError, match="2 key-value heads, which 4 devices along 'model' do not divide"):
        tp.llm.load(tmp_path, backend="jax", mesh=tp.Mesh({"model": 4}))
    with pytest.raises(tp.InputError, match="a model does not lie along 'stage'"):
        tp.llm.load(tmp_path, backend="jax", mesh=tp.Mesh({"stage": 2}))


# -- memory and arrays -------------------------------------------------------------------------------------------------


def a_recurrence() -> tp.Program:
    with tp.Program("recurrence") as program:
        b, t = tp.dims("b t")
        x, w = tp.input("x", (8,), (b, t)), tp.input("w", (8, 8))
        h = tp.recurrent("h", (8,), (b, t))
        h[b, 0] = x
        h[b, t + 1] = tp.tanh(h @ w) + x[b, t + 1]
        tp.output("h", h)
        tp.output("mean", h[0 : b.size, t].mean(axis=0))
    return program


X, W = normal(8, 6, 8), normal(8, 8, seed=1, scale=0.3)
MESH = tp.Mesh({"data": 4})


def compiled(mesh: tp.Mesh | None = MESH, **given: Any) -> Any:
    return tp.compile(a_recurrence(), "jax", mesh=mesh, **({"shard": {"b": "data"}, **given} if mesh else {}))


def laid(array: Any, *axes: str | None, devices: int = 4, kind: AxisType = AxisType.Auto) -> jax.Array:
    mesh = jax.make_mesh((devices,), ("data",), (kind,), devices=jax.devices()[:devices])
    return jax.device_put(array, NamedSharding(mesh, PartitionSpec(*axes)))


def specification(array: Any) -> tuple[str | None, ...]:
    """How the axes lie, whole ones included."""
    spec = tuple(array.sharding.spec)
    return spec + (None,) * (array.ndim - len(spec))


EACH_KIND = pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)


def addresses(array: jax.Array) -> list[int]:
    return [each.data.unsafe_buffer_pointer() for each in array.addressable_shards]


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_what_one_device_holds_falls_with_their_number(devices: int) -> None:
    one, many = (
        tp.compile(a_recurrence(), "jax", sizes={"b": 8, "t": 6}, **given).memory
        for given in ({}, {"mesh": tp.Mesh({"data": devices}), "shard": {"b": "data"}})
    )
    for name in ("x", "h"):
        assert many[name].bytes * devices == one[name].bytes
        assert many[name].shape == one[name].shape
    assert many["w"].bytes == one["w"].bytes
    assert many["mean"].bytes == one["mean"].bytes
    assert many.peak_bytes < one.peak_bytes


def test_axes_of_weights_that_are_cut_take_less() -> None:
    run = compiled(shard={}, place={"w": (None, "data")}, sizes={"b": 8, "t": 6})
    assert run.memory["w"].bytes == W.nbytes // 4
    assert_near(run(x=X, w=W), compiled(None)(x=X, w=W))


def test_outputs_lie_as_dims_do() -> None:
    out = compiled()(x=X, w=W)
    assert specification(out["h"]) == ("data", None, None)
    assert out["h"].shape == (8, 6, 8)
    assert {each.data.shape for each in out["h"].addressable_shards} == {(2, 6, 8)}
    assert out["mean"].is_fully_replicated
    assert_near(out, compiled(None)(x=X, w=W))


@EACH_KIND
def test_arrays_that_lie_so_are_taken_as_they_are(kind: AxisType) -> None:
    run, x, w = compiled(sizes={"b": 8, "t": 6}), laid(X, "data", kind=kind), laid(W, kind=kind)
    put = run.device_put(x=x, w=w)
    assert put["x"] is x
    assert put["w"] is w
    before = addresses(x)
    found = run(x=x, w=w)
    assert addresses(x) == before
    assert not x.is_deleted()
    assert_near(found, compiled(None)(x=X, w=W))


@pytest.mark.parametrize(
    "sizes",
    [
        {"b": 8, "t": 6},
        None,
    ],
    ids=["sizes", "no sizes"],
)
def test_what_is_put_lies_as_asked(sizes: dict[str, int] | None) -> None:
    run = compiled(sizes=sizes)
    put = run.device_put(x=X, w=W)
    assert put["w"].is_fully_replicated
    assert specification(put["x"]) == ("data", None, None)
    assert run.device_put(**put)["x"] is put["x"]


def test_what_a_run_returns_is_given_to_another() -> None:
    run = compiled()
    first = run(x=X, w=W)["h"]
    again = run(x=first, w=W)
    assert_near(again, compiled(None)(x=np.asarray(first), w=W))


@pytest.mark.parametrize(
    ("axes", "devices"), [((None, "data"), 4), ((None, None, "data"), 4), (("data",), 2), (("data",), 8)]
)
def test_arrays_that_lie_in_another_way_are_refused(axes: tuple[str | None, ...], devices: int) -> None:
    x = laid(normal(8, 8, 8), *axes, devices=devices)
    with pytest.raises(tp.InputError, match="lies in parts, as .*, and is to lie as") as caught:
        compiled()(x=x, w=W)
    assert "say in shard= or place= that it lies so" in str(caught.value.hint)


@pytest.mark.parametrize("mesh", [None, MESH], ids=["one device", "mesh"])
def test_the_line_that_gives_an_array_that_lies_otherwise(mesh: tp.Mesh | None) -> None:
    with pytest.raises(tp.InputError, match="lies in parts") as caught:
        compiled(mesh)(x=laid(normal(8, 8, 8), None, "data"), w=W)
    assert caught.value.location is not None
    assert caught.value.location.path == __file__


def test_weights_that_lie_in_parts_are_not_gathered() -> None:
    with pytest.raises(tp.InputError, match="lies in parts"):
        compiled()(x=X, w=laid(W, "data"))


@EACH_KIND
def test_parts_are_not_gathered_onto_one_device(kind: AxisType) -> None:
    with pytest.raises(tp.InputError, match="lies in parts on 4 devices, .* and the program runs on one") as caught:
        compiled(None)(x=laid(X, "data", kind=kind), w=W)
    assert "compile with mesh= and shard= or place=" in str(caught.value.hint)


@pytest.mark.parametrize(
    "kind",
    [
        AxisType.Auto,
        AxisType.Explicit,
    ],
    ids=str,
)
def test_of_what_is_the_same_on_all_devices_one_has_all(kind: AxisType) -> None:
    assert_near(compiled(None)(x=laid(X, kind=kind), w=W), compiled(None)(x=X, w=W))


def test_more_devices_than_there_are() -> None:
    count = len(jax.devices()) * 2
    with pytest.raises(tp.UnsupportedError, match=f"has {count} devices, and JAX finds {len(jax.devices())}") as caught:
        compiled(tp.Mesh({"data": count}))
    assert f"jax.config.update('jax_num_cpu_devices', {count})" in str(caught.value.hint)
    assert caught.value.location is not None
    assert caught.value.location.path == __file__


@pytest.mark.parametrize("used", [False, True])
def test_an_executable_is_pickled(used: bool) -> None:
    run = compiled(sizes={"b": 8, "t": 6})
    if used:
        run(x=X, w=W)
    again = pickle.loads(pickle.dumps(run))
    found = again(x=X, w=W)
    assert specification(found["h"]) == ("data", None, None)
    assert_near(found, run(x=X, w=W))
    assert again.memory["h"].bytes == run.memory["h"].bytes


def test_what_it_exchanges_is_explained() -> None:
    told = compiled(sizes={"b": 8, "t": 6}).explain("all")
    assert "# placement" in told
    assert re.search(rf"all-reduce over data, \d+ B, .*{re.escape(__file__)}:\d+", told)


# -- runs that go on elsewhere -----------------------------------------------------------------------------------------


class Interrupted(Exception):
    pass


def test_a_run_goes_on_with_other_devices(tmp_path: Path) -> None:
    """Files hold what lies in parts whole, so that any mesh can take them up."""
    with tp.Program("walk") as program:
        i, b = tp.dim("i"), tp.dim("b", 8)
        x = tp.recurrent("x", (3,), (i, b))
        x[0, b] = 0.0
        x[i + 1, b] = x + tp.random.normal((3,), dims=(i, b))
        w = tp.parameter("w", (3,), np.zeros(3, np.float32), dims=(i,))
        w[i + 1] = w + 0.1 * x[i, 0:8].mean(axis=0)
        tp.output("w", w)
        tp.output("x", x)

    def on(devices: int) -> tp.Executable:
        return tp.compile(program, "jax", sizes={"i": 40}, mesh=tp.Mesh({"data": devices}), shard={"b": "data"})

    def interrupt(done: int, total: int) -> None:
        if done >= 25:
            raise Interrupted

    kept = tp.Checkpoints(tmp_path / "walk", along="i", every=10)
    with pytest.raises(Interrupted):
        on(2)(seed=3, checkpoint=kept, progress=interrupt)
    expected, found = on(2)(seed=3), on(4)(checkpoint=kept, resume=True)
    np.testing.assert_array_equal(np.asarray(found["x"]), np.asarray(expected["x"]))
    np.testing.assert_allclose(np.asarray(found["w"]), np.asarray(expected["w"]), rtol=1e-5)


# -- pipelines ---------------------------------------------------------------------------------------------------------

STAGES, LAYERS, MICROBATCHES, POINTS = 4, 8, 16, 4
BOUNDARY = POINTS * WIDTH * 4
"""Bytes of what a layer makes of one microbatch."""
EACH_STAGES_OWN = {"x": normal(MICROBATCHES, POINTS, WIDTH), "w": normal(LAYERS, WIDTH, WIDTH, seed=1, scale=0.2)}


def deep(*outputs: str) -> tp.Program:
    with tp.Program("deep") as program:
        m, l = tp.dims("m l")
        x, w = tp.input("x", (POINTS, WIDTH), (m,)), tp.input("w", (WIDTH, WIDTH), (l,))
        h = tp.recurrent("h", (POINTS, WIDTH), (m, l))
        h[m, 0] = x
        h[m, l] = tp.tanh(h[m, l - 1] @ w)
        loss = (h[0 : m.size, l.size - 1] ** 2).mean()
        made = {"h": h, "y": h[m, l.size - 1], "loss": loss, "gradient": tp.grad(loss, w)}
        for name in outputs:
            tp.output(name, made[name])
    return program


def deep_trained() -> tp.Program:
    with tp.Program("deep") as program:
        i, m, l = tp.dims("i m l")
        x, w = tp.input("x", (POINTS, WIDTH), (m,)), tp.input("w", (WIDTH, WIDTH), (l,))
        learned = tp.parameter("learned", (WIDTH, WIDTH), init=w, dims=(i, l))
        h = tp.recurrent("h", (POINTS, WIDTH), (i, m, l))
        h[i, m, 0] = x
        h[i, m, l] = tp.tanh(h[i, m, l - 1] @ learned[i, l])
        loss = (h[i, 0 : m.size, l.size - 1] ** 2).mean()
        learned[i + 1, l] = learned - 0.1 * tp.grad(loss, learned)
        tp.output("loss", loss)
    return program


def piped(program: tp.Program, **sizes: int) -> tp.Executable:
    pipeline = tp.Pipeline("l", over="stage", microbatches="m")
    sizes = {"l": LAYERS, "m": MICROBATCHES, **sizes}
    return tp.compile(program, "jax", sizes=sizes, mesh=tp.Mesh({"stage": STAGES}), pipeline=pipeline)


def foretold(run: tp.Executable) -> list[tuple[str, int, int]]:
    """Kind, bytes, and inside how many loops."""
    found = re.findall(
        r"^(\S+) over stage, (\d+) B, (?:outside of loops|inside (.*?)):", run.explain("all"), re.MULTILINE
    )
    names = {"permute": "collective-permute"}
    return [(names.get(kind, kind), int(bytes), len(loops.split(", ")) if loops else 0) for kind, bytes, loops in found]


def moved(texts: list[str]) -> list[int]:
    """Bytes of each permute in compiled text."""
    found = re.findall(r" = f32\[([\d,]*)\]\S* collective-permute\(", "\n".join(texts))
    return [4 * math.prod(map(int, shape.split(","))) for shape in found]


nothing_is_gathered = pytest.mark.filterwarnings("error::tempo.errors.GatherWarning")


@nothing_is_gathered
def test_stages_hand_on_one_activation_a_wave(texts: list[str]) -> None:
    run = piped(deep("y"))
    found = run(**EACH_STAGES_OWN)
    assert sorted((each.kind, each.loops) for each in all_of(texts)) == [("all-reduce", 0), ("collective-permute", 1)]
    assert moved(texts) == [BOUNDARY]
    last = MICROBATCHES * BOUNDARY
    assert foretold(run) == [("collective-permute", BOUNDARY, 1), ("all-reduce", last, 0)]
    assert "pipeline of 4 stages of 2; 16 points of m in 19 waves, each way; bubble 3/19" in run.explain("all")
    assert_near(found, tp.compile(deep("y"), "numpy")(**EACH_STAGES_OWN))


@nothing_is_gathered
def test_gradients_go_back_through_stages(texts: list[str]) -> None:
    run = piped(deep("loss", "gradient"))
    found = run(**EACH_STAGES_OWN)
    exchanged = all_of(texts)
    permutes = [each.loops for each in exchanged if each.kind == "collective-permute"]
    assert permutes == [1, 1]
    assert {(each.kind, each.loops) for each in exchanged} == {("collective-permute", 1), ("all-reduce", 0)}
    assert moved(texts) == [BOUNDARY] * 2
    told = foretold(run)
    assert sorted((kind, loops) for kind, _, loops in told) == sorted((each.kind, each.loops) for each in exchanged)
    assert {bytes for kind, bytes, _ in told if kind == "collective-permute"} == {BOUNDARY}
    assert specification(found["gradient"]) == ("stage", None, None)
    assert_near(found, tp.compile(deep("loss", "gradient"), "numpy")(**EACH_STAGES_OWN))


@nothing_is_gathered
def test_stages_in_a_training_loop(texts: list[str]) -> None:
    """The last iteration, which needs no gradients, stands behind the loop."""
    run = piped(deep_trained(), i=5)
    found = run(**EACH_STAGES_OWN)
    exchanged = sorted((each.kind, each.loops) for each in all_of(texts))
    forward = [("all-reduce", 0), ("collective-permute", 1)]
    both_ways = [("all-reduce", 1), ("collective-permute", 2), ("collective-permute", 2)]
    assert exchanged == sorted([*forward, *both_ways])
    assert moved(texts) == [BOUNDARY] * 3
    assert sorted((kind, loops) for kind, _, loops in foretold(run)) == both_ways
    assert specification(found.state["learned"]) == ("stage", None, None)
    wanted = tp.compile(deep_trained(), "numpy", sizes={"i": 5})(**EACH_STAGES_OWN)
    assert_near(found, wanted)
    assert_near(found.state, wanted.state)


def test_a_weight_that_layers_share_is_added_up(texts: list[str]) -> None:
    with tp.Program() as program:
        m, l = tp.dims("m l")
        x, w = tp.input("x", (POINTS, WIDTH), (m,)), tp.input("w", (WIDTH, WIDTH))
        h = tp.recurrent("h", (POINTS, WIDTH), (m, l))
        h[m, 0] = x
        h[m, l] = tp.tanh(h[m, l - 1] @ w)
        tp.output("gradient", tp.grad((h[0 : m.size, l.size - 1] ** 2).mean(), w))
    given = {"x": EACH_STAGES_OWN["x"], "w": EACH_STAGES_OWN["w"][0]}
    found = piped(program)(**given)
    assert_near(found, tp.compile(program, "numpy", sizes={"l": LAYERS})(**given))
    assert {(each.kind, each.loops) for each in all_of(texts)} == {("collective-permute", 1), ("all-reduce", 0)}


@nothing_is_gathered
def test_a_stage_has_its_own_layers() -> None:
    one = tp.compile(deep("y"), "jax", sizes={"l": LAYERS, "m": MICROBATCHES})
    many = piped(deep("y"))
    assert many.memory["w"].bytes * STAGES == one.memory["w"].bytes
    assert many.memory["w"].shape == one.memory["w"].shape
    put = many.device_put(**EACH_STAGES_OWN)
    assert specification(put["w"]) == ("stage", None, None)
    assert put["x"].is_fully_replicated
    assert many(**put)["y"].is_fully_replicated
    trained = piped(deep_trained(), i=5)
    assert trained.memory["learned"].bytes * STAGES == EACH_STAGES_OWN["w"].nbytes


@nothing_is_gathered
def test_what_all_layers_make_lies_along_stages(texts: list[str]) -> None:
    found = piped(deep("h"))(**EACH_STAGES_OWN)
    assert [(each.kind, each.loops) for each in all_of(texts)] == [("collective-permute", 1)]
    assert specification(found["h"]) == (None, "stage", None, None)
    assert_near(found, tp.compile(deep("h"), "numpy")(**EACH_STAGES_OWN))
