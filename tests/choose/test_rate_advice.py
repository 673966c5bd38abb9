"""The rate of a network: features, tangents, advice, the online rules, and ``inner.lr=auto`` in a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from innerloop.choose.rate_advice import (
    NORMALISED,
    SWEEP,
    UNNORMALISED,
    RateAdvice,
    advise_rate,
    warning_for,
)
from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import Params, Task, TaskBatch
from innerloop.experiment.inner_rate import read_rate
from innerloop.experiment.loading import load_run
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.results import TrainResult
from innerloop.experiment.resuming import resume
from innerloop.experiment.run_evaluation import evaluate_run
from innerloop.experiment.training import train
from innerloop.learners import anil, episodic
from innerloop.learners.online import PREFIX, h3_rate, online_anil, online_buffers
from innerloop.nets import Network, conv4, mlp
from innerloop.nets.network import apply
from innerloop.report.run_page import rate_view
from innerloop.runs.checkpoints import load_checkpoint, save_checkpoint
from innerloop.runs.manifest import read_manifest
from innerloop.tasks import Sampler, get_family, make_sampler
from innerloop.testing.closeness import (
    CHAINED,
    CONDITIONED,
    DEEP,
    ROUNDED,
    SUMMED,
    assert_close,
    assert_trees_equal,
)
from innerloop.theory.rate.estimate import split_moments
from innerloop.theory.rate.tangent_features import (
    gradient_size,
    head_scales,
    head_stacks,
    pull,
    push,
    tangent_gradient_moments,
    tangent_gram_moments,
    tangent_trace_moments,
    task_outputs,
)
from innerloop.training import Plan, meta_gradient
from oracles import rate as slow
from oracles.problems import images

DOUBLE = torch.float64


def sines(shots: int = 5) -> Sampler:
    return make_sampler(get_family("sine"), seed=0, shots=shots, queries=8, dtype=DOUBLE)


def tasks_of(count: int) -> TaskBatch:
    batch = sines().episodes(range(count))
    assert isinstance(batch, TaskBatch)
    return batch


def start(network: Network) -> tuple[Params, dict[str, Tensor]]:
    params, buffers = network.init(torch.Generator().manual_seed(0))
    return {n: p.to(DOUBLE) for n, p in params.items()}, {n: b.to(DOUBLE) for n, b in buffers.items()}


def jacobian(
    network: Network, params: Params, buffers: dict[str, Tensor], x: Tensor, names: list[str]
) -> Tensor:
    """All rows, one backward pass each: what the fast path never forms."""
    own = {n: params[n].clone().requires_grad_() for n in names}
    outputs, _ = apply(network, {**params, **own}, buffers, x)
    rows = []
    for entry in outputs.flatten():
        grads = torch.autograd.grad(entry, list(own.values()), retain_graph=True, materialize_grads=True)
        rows.append(torch.cat([g.flatten() for g in grads]))
    return torch.stack(rows)


# ---- features ----


@pytest.mark.parametrize("parametrisation", ["standard", "ntk"])
@pytest.mark.parametrize("bias", [True, False])
def test_head_features_are_derivatives_by_the_head(parametrisation: Any, bias: bool) -> None:
    network = mlp(1, [6], 2, parametrisation=parametrisation, bias=bias, bias_var=0.5)
    params, buffers = start(network)
    batch = tasks_of(3)
    batch = batch._replace(
        y_support=batch.y_support.expand(-1, -1, 2), y_query=batch.y_query.expand(-1, -1, 2)
    )
    stacks = head_stacks(network, params, buffers, batch)
    rows = jacobian(network, params, buffers, batch.x_query[1], list(network.head_names))
    first = rows[::2]  # derivatives of output 0
    used = first[:, first.abs().sum(0) > 0]
    expected = (used @ used.T).detach()
    assert_close(stacks.query[1] @ stacks.query[1].mT, expected)


def test_a_last_layer_that_is_not_linear_is_refused() -> None:
    network = mlp(1, [6], 2)
    odd = network._replace(head=lambda p, z: network.head(p, z).tanh())
    params, _ = start(network)
    with pytest.raises(UserError, match="not of the form"):
        head_scales(odd, params, 6)


@pytest.mark.parametrize("kind", ["mlp", "conv", "conv-none"])
def test_products_with_the_jacobian_are_those_of_the_jacobian(kind: str) -> None:
    network = (
        mlp(1, [6], 1)
        if kind == "mlp"
        else conv4(1, 16, 3, filters=2, norm="none" if "none" in kind else "transductive")
    )
    params, buffers = start(network)
    x = sines().episode(0).x_support if kind == "mlp" else images(1, seed=0).x_support[0].to(DOUBLE)
    names = list(params)
    rows = jacobian(network, params, buffers, x, names)

    def outputs(moving: Params) -> Tensor:
        return apply(network, {**params, **moving}, buffers, x)[0]

    made = torch.Generator().manual_seed(1)
    tangent = {n: torch.randn(params[n].shape, generator=made, dtype=DOUBLE) for n in names}
    flat = torch.cat([tangent[n].flatten() for n in names])
    pushed = push(outputs, params, tangent)
    assert_close(pushed.flatten(), rows @ flat, (DEEP, SUMMED))
    pulled = pull(outputs, params, pushed.detach())
    assert_close(torch.cat([pulled[n].flatten() for n in names]), rows.T @ pushed.flatten(), (DEEP, SUMMED))


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.one_in(2)
def test_probes_and_the_kernel_give_the_traces_of_the_tangent_features(outputs: int) -> None:
    network, loss = mlp(1, [5], outputs), get_loss("mse")
    params, buffers = start(network)
    batch = tasks_of(4)
    names = list(params)
    u = torch.stack([jacobian(network, params, buffers, x, names) for x in batch.x_support])
    t = torch.stack([jacobian(network, params, buffers, x, names) for x in batch.x_query])
    # K samples of k outputs are K·k rows, but the convention's constant counts samples
    exact = slow.split(u.detach(), t.detach()) / outputs
    assert split_moments(u.detach(), t.detach()).rate == pytest.approx(exact * outputs, rel=SUMMED)
    moments = tangent_trace_moments(network, loss, params, buffers, batch, names, probes=400)
    assert moments.rate == pytest.approx(exact, rel=0.05)
    moments = tangent_gram_moments(network, loss, params, buffers, batch, names)
    assert moments.rate == pytest.approx(exact, rel=SUMMED)


@pytest.mark.parametrize("loss", ["mse", "cross-entropy"])
def test_the_gradient_form_of_a_network_is_that_of_its_head_where_only_the_head_moves(loss: str) -> None:
    network = mlp(1, [5], 3)
    params, buffers = start(network)
    batch = tasks_of(4)
    labels = loss == "cross-entropy"
    y_s = (batch.x_support[..., 0] > 0).long() if labels else batch.y_support.expand(-1, -1, 3)
    y_q = (batch.x_query[..., 0] > 1).long() if labels else batch.y_query.expand(-1, -1, 3)
    batch = batch._replace(y_support=y_s, y_query=y_q)
    stacks = head_stacks(network, params, buffers, batch)
    weight, bias = (params[n] for n in network.head_names)
    head = torch.cat([weight.T, bias.unsqueeze(0)])
    above, below = slow.best_step(*stacks, loss, head)
    moments = tangent_gradient_moments(network, get_loss(loss), params, buffers, batch, network.head_names)
    assert float(moments.numerator.mean()) == pytest.approx(above, rel=CHAINED)
    assert float(moments.denominator.mean()) == pytest.approx(below, rel=CHAINED)


# ---- advice ----


def test_the_advice_for_a_head_is_near_the_best_step_there_is() -> None:
    """On frozen features with the pooled head, the query error after one step is least near the point."""
    network, loss = mlp(1, [40, 40], 1), get_loss("mse")
    params, buffers = start(network)
    advice = advise_rate(network, params, buffers, sines(10), loss, method="anil", tasks=200)
    assert advice.low <= advice.alpha <= advice.high
    assert advice.kind == "bracket"
    from innerloop.theory.rate.bracket import pooled_head

    stacks = head_stacks(network, params, buffers, sines(10).episodes(range(200)))
    head = pooled_head(torch.cat(stacks[:2], 1), torch.cat(stacks[2:], 1))

    def after(rate: float) -> float:
        step = 2 * rate / 10 * stacks.support.mT @ (stacks.support @ head - stacks.support_targets)
        return float((stacks.query @ (head - step) - stacks.query_targets).square().mean())

    gradient = advice.forms["gradient"]
    best = min(after(gradient * f) for f in (0.25, 0.5, 0.9, 1.0, 1.1, 2.0, 4.0))
    assert after(gradient) == pytest.approx(best, rel=1e-3)
    assert after(gradient) < after(0.0)
    assert advice.alpha == pytest.approx((gradient * advice.forms["trace"]) ** 0.5)


@pytest.mark.parametrize(("norm", "factor"), [("transductive", NORMALISED), ("none", UNNORMALISED)])
def test_the_advice_for_labels_is_a_point_that_says_how_sure_it_is(norm: Any, factor: float) -> None:
    network = conv4(1, 16, 3, filters=2, norm=norm)
    params, buffers = start(network)
    batch = images(8, seed=1)
    noise = 0.3 * batch.x_query  # queries look like their class
    batch = batch._replace(x_query=batch.x_support.repeat_interleave(2, dim=1) + noise)
    sampler = Sampler(lambda indices: batch.slice(0, len(indices)))
    loss = get_loss("cross-entropy")
    for steps in (1, 2):
        advice = advise_rate(network, params, buffers, sampler, loss, method="anil", steps=steps, tasks=8)
        assert advice.sweep == (advice.alpha,)
        assert advice.factor == factor
        gradient, trace = advice.forms["gradient"], advice.forms["trace"]
        assert advice.alpha == pytest.approx(trace if norm == "none" else (gradient * trace) ** 0.5)


@pytest.mark.parametrize("method", ["maml", "boil", "meta-sgd", "maml-lslr", "anil"])
@pytest.mark.parametrize("optimiser", ["sgd", "momentum", "adam"])
def test_every_gradient_learner_gets_an_answer_that_says_what_it_is(method: str, optimiser: str) -> None:
    network = mlp(1, [8], 1)
    params, buffers = start(network)
    advice = advise_rate(
        network,
        params,
        buffers,
        sines(),
        get_loss("mse"),
        method=method,
        steps=2,
        optimiser=optimiser,
        tasks=6,
    )
    assert advice.alpha > 0
    assert advice.low <= advice.alpha <= advice.high
    if optimiser != "sgd":
        assert advice.kind == "sweep"
        assert advice.factor is None
        assert "plain gradient steps" in advice.reasons[0]
    elif method in ("maml", "boil"):
        assert advice.kind == "range"
    else:
        assert advice.kind == "bracket"
    if len(advice.sweep) > 1:
        ratios = [rate / advice.sweep[1] for rate in advice.sweep]
        assert ratios == pytest.approx(list(SWEEP))
    json.dumps(advice.as_dict())


def test_the_same_network_gives_the_same_step_under_every_convention() -> None:
    network = mlp(1, [8], 1)
    params, buffers = start(network)
    rates = {
        name: advise_rate(network, params, buffers, sines(), get_loss(name), method="anil", tasks=50).alpha
        for name in ("mse", "half-mse", "half-sse")
    }
    assert rates["half-mse"] == pytest.approx(2 * rates["mse"], rel=CHAINED)
    assert rates["half-sse"] == pytest.approx(2 * rates["mse"] / 5, rel=CHAINED)


@pytest.mark.parametrize("method", ["anil", "maml", "meta-sgd"])
def test_rates_of_several_steps_are_those_of_one_divided_by_the_root_of_the_steps(method: str) -> None:
    network = mlp(1, [8], 1)
    params, buffers = start(network)
    one, four = (
        advise_rate(network, params, buffers, sines(), get_loss("mse"), method=method, steps=steps, tasks=20)
        for steps in (1, 4)
    )
    numbers = [(one.alpha, *one.sweep, *one.interval), (four.alpha, *four.sweep, *four.interval)]
    assert [2 * number for number in numbers[1]] == pytest.approx(list(numbers[0]))
    assert method == "meta-sgd" or any("√4 for 4 inner steps" in reason for reason in four.reasons)


def test_the_online_trace_rule_divides_as_the_estimate_before_training_does() -> None:
    network, loss = mlp(1, [8], 1), get_loss("mse")
    params, _ = start(network)
    task = Task(*sines().episodes(range(1)).task(0))
    own = {
        f"{PREFIX}above": torch.tensor(3.0, dtype=DOUBLE),
        f"{PREFIX}below": torch.tensor(3.0, dtype=DOUBLE),
    }
    one = 5 / 2  # K/2 for the mean squared error of five samples, times above/below
    moved = online_anil(network, loss, one / 2, 4, "trace").adapt(params, own, task.x_support, task.y_support)
    plain = anil(network, loss, one / 2, 4).adapt(params, {}, task.x_support, task.y_support)
    for name in network.head_names:
        assert_close(moved.params[name], plain.params[name])


def test_no_inner_loop_no_rate() -> None:
    network = mlp(1, [8], 1)
    params, buffers = start(network)
    for method, steps, match in (("protonet", 1, "no inner learning rate"), ("anil", 0, "no inner steps")):
        with pytest.raises(UserError, match=match):
            advise_rate(network, params, buffers, sines(), get_loss("mse"), method=method, steps=steps)


def test_a_rate_far_outside_is_warned_about() -> None:
    advice = RateAdvice(0.14, 0.1, 0.2, (0.14,), (0.1, 0.2), "bracket", 2.0, "", {}, (), 1, 0.0)
    assert warning_for(0.1, advice) is None
    assert warning_for(0.8, advice) is None
    assert "far above" in str(warning_for(0.81, advice))
    assert "far below" in str(warning_for(0.024, advice))
    assert warning_for(5.9, advice._replace(factor=30.0)) is None
    assert "more than 30 times" in str(warning_for(6.1, advice._replace(factor=30.0)))
    assert "far below" in str(warning_for(0.024, advice._replace(factor=30.0)))
    assert warning_for(100.0, advice._replace(kind="range")) is None


def test_adam_s_first_step_is_as_long_as_it_is_said_to_be() -> None:
    network, loss = mlp(1, [8], 1), get_loss("mse")
    params, buffers = start(network)
    batch = tasks_of(1)
    size = gradient_size(network, loss, params, buffers, batch, list(params))
    outputs, _ = task_outputs(network, params, buffers, batch.task(0))
    leaves = {n: p.clone().requires_grad_() for n, p in params.items()}
    grads = torch.autograd.grad(loss.value(outputs(leaves), batch.y_support[0]), list(leaves.values()))
    flat = torch.cat([g.flatten() for g in grads])
    assert size == pytest.approx(float(flat.square().mean().sqrt()), rel=SUMMED)


# ---- online ----


def pictures(i: int) -> Any:
    batch = images(4, seed=i)
    return batch.to(dtype=DOUBLE)


def h3_by_hand(z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Classes one by one, all cosines between them."""
    each = [z[labels == c].mean(0) for c in labels.unique()]
    cosines = [torch.dot(a, b) / (a.norm() * b.norm()) for a in each for b in each]
    return 1 / (2 * len(z) * torch.stack(cosines).mean())


def test_h3_takes_the_mean_cosine_between_classes_of_several_shots() -> None:
    z = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=DOUBLE).abs()
    z = z / z.norm(dim=-1, keepdim=True)
    labels = torch.tensor([2, 0, 1, 1, 2, 0])
    assert_close(h3_rate(z, labels, 3), h3_by_hand(z, labels))
    assert_close(h3_rate(z), h3_by_hand(z, torch.arange(6)))


@pytest.mark.parametrize("rule", ["h3", "h15", "trace"])
def test_online_rules_keep_their_rate_in_buffers_and_agree_in_every_mode(rule: Any) -> None:
    network, loss = conv4(1, 16, 3, filters=2), get_loss("cross-entropy")
    params, buffers = start(network)
    buffers = {**buffers, **online_buffers(rule, 0.1, params[network.head_names[0]])}
    objective = episodic(online_anil(network, loss, 0.1, 2, rule), loss)
    gradients = [
        meta_gradient(objective.loss, Plan(mode))(params, buffers, pictures(0)) for mode in ("loop", "vmap")
    ]
    for name in gradients[0].grads:
        assert_close(gradients[0].grads[name], gradients[1].grads[name], (CONDITIONED, CHAINED))
    after = {n: b for n, b in gradients[0].buffers.items() if n.startswith(PREFIX)}
    assert after.keys() == {n for n in buffers if n.startswith(PREFIX)}
    for name, value in after.items():
        assert_close(value, gradients[1].buffers[name], (DEEP, ROUNDED))
    if rule != "trace":
        z = [network.features(params, {}, t.x_support, "batch")[0] for t in pictures(0).tasks()]
        unit = [f / f.norm(dim=-1, keepdim=True) for f in z]
        labels = [t.y_support for t in pictures(0).tasks()]
        by_hand = [h3_by_hand(f, y) for f, y in zip(unit, labels, strict=True)]
        each = by_hand if rule == "h3" else [1 / (2 * len(f) * f.var(correction=0)) for f in unit]
        assert_close(
            after["online.rate"], 0.9 * torch.tensor(0.1, dtype=DOUBLE) + 0.1 * torch.stack(each).mean()
        )


def test_our_online_rule_never_leaves_its_clamp() -> None:
    network, loss = mlp(1, [8], 1), get_loss("mse")
    params, _ = start(network)
    task = Task(*sines().episodes(range(1)).task(0))
    learner = online_anil(network, loss, 1e-6, 1, "trace")
    own = online_buffers("trace", 1e-6, params[network.head_names[0]])
    for _ in range(3):
        adapted = learner.adapt(params, own, task.x_support, task.y_support, training=True)
        _, own = learner.predict(adapted, task.x_query, training=True)
    adapted = learner.adapt(params, own, task.x_support, task.y_support)
    name = network.head_names[0]
    z, _ = network.features(params, {}, task.x_support, "batch")
    head = {n: params[n].clone().requires_grad_() for n in network.head_names}
    grad = torch.autograd.grad(loss.value(network.head(head, z), task.y_support), list(head.values()))[0]
    assert_close(adapted.params[name], params[name] - 4e-6 * grad)


# ---- in a run ----

SMALL = [
    "outer.steps=120",
    "outer.batch=3",
    "eval.episodes=5",
    "eval.validation_episodes=4",
    "model.hidden=[8]",
    "run.execution=loop",
    "run.compile=off",
    "inner.lr=auto",
]


def run_one(tmp_path: Path, *items: str) -> tuple[Path, TrainResult]:
    given = {item.partition("=")[0] for item in items}
    kept = [item for item in SMALL if item.partition("=")[0] not in given]
    recipe = load_recipe("sine-maml", [*kept, f"run.folder={tmp_path}", *items])
    result = train(recipe, progress=False)
    return result.run, result


LABELS = [
    *("data.name=glyphs", "tasks.family=few-shot", "tasks.ways=3", "tasks.shots=1", "tasks.queries=2"),
    *("inner.loss=cross-entropy", "outer.steps=2"),
]


@pytest.mark.parametrize(("method", "items"), [("anil", LABELS), ("maml", []), ("meta-sgd", [])])
@pytest.mark.one_in(3)
def test_auto_settles_on_a_rate_and_everything_afterwards_uses_it(
    tmp_path: Path, method: str, items: list[str]
) -> None:
    run, result = run_one(tmp_path, f"inner.method={method}", *items)
    record = read_manifest(run)["rate"]
    assert record["setting"] == "auto"
    assert record["low"] <= record["alpha"] <= record["high"]
    assert result.evaluation.protocol["inner_lr"] == record["alpha"]
    saved = load_checkpoint(run, "last")
    assert saved is not None
    assert saved[1]["inner_lr"] == record["alpha"]
    parts = load_run(run).parts
    recipe = parts.recipe
    assert recipe.inner.lr == record["alpha"]
    assert evaluate_run(run, []).mean == result.evaluation.mean
    if method == "maml":
        assert "no room for a sweep" in record["reasons"][-1]  # 5 % of 120 steps tell five rates apart?
    if method == "meta-sgd":
        rates = [v for n, v in parts.params.items() if n.startswith("inner_lr.")]
        assert all(bool((v == torch.tensor(record["alpha"], dtype=v.dtype)).all()) for v in rates)


def test_a_run_with_auto_resumes_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = run_one(tmp_path / "whole", "inner.method=maml", "run.save_every=10")
    halves = load_recipe(
        "sine-maml", [*SMALL, f"run.folder={tmp_path / 'half'}", "inner.method=maml", "run.save_every=10"]
    )
    real = save_checkpoint

    def cut(run: Path, step: int, *rest: Any) -> Any:
        real(run, step, *rest)
        if step == 50:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("innerloop.experiment.session.save_checkpoint", cut)
        with pytest.raises(KeyboardInterrupt):
            train(halves, progress=False)
    half = next((tmp_path / "half").glob("*/*/manifest.json")).parent
    before = read_rate(half)
    (half / "manifest.json").unlink()  # the checkpoint alone must do
    resume(half, progress=False)
    assert read_rate(half) == before == read_rate(whole)
    ends = [load_checkpoint(run, "last") for run in (whole, half)]
    assert ends[0] is not None
    assert ends[1] is not None
    assert_trees_equal(ends[0][0], ends[1][0])


def test_a_user_s_own_rate_is_checked(tmp_path: Path) -> None:
    items = [*LABELS, "inner.method=anil"]
    run, _ = run_one(tmp_path, *items, "inner.lr=1e-9")
    record = read_manifest(run)["rate"]
    assert "far below" in record["warning"]
    assert "far below" in (run / "log.txt").read_text()
    fine, _ = run_one(tmp_path, *items, f"inner.lr={record['low']}")
    assert read_manifest(fine)["rate"]["warning"] is None
    page = rate_view(read_manifest(fine)["rate"])
    assert page is not None
    assert "set by hand" in page["sentences"][0]


def test_auto_is_refused_where_its_estimate_fails_before_anything_is_written(tmp_path: Path) -> None:
    """A head under squared errors; a number is taken."""
    with pytest.raises(UserError, match=r"not offered for inner.method=anil with inner.loss=mse.*number"):
        run_one(tmp_path, "inner.method=anil")
    assert not list(tmp_path.iterdir())
    run, _ = run_one(tmp_path, "inner.method=anil", "inner.lr=0.001")
    assert read_manifest(run)["status"] == "finished"


@pytest.mark.parametrize(
    ("items", "match"),
    [
        (["inner.lr=automatic"], "a number, or auto"),
        (["inner.method=none", "inner.lr=auto"], "unknown setting 'inner.lr' with inner.method=none"),
        (["inner.online=h3"], "inner.method=anil"),
    ],
)
def test_mistakes_are_answered(items: list[str], match: str) -> None:
    with pytest.raises(UserError, match=match):
        load_recipe("sine-maml", items)
