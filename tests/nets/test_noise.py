"""Dropout and DropBlock: the right share, whole blocks, and masks that are functions of a counter."""

import numpy as np
import pytest
import torch
from torch import nn

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import TaskBatch
from innerloop.learners import erm
from innerloop.nets import from_module, noise, resnet12, wide_resnet, with_noise, without_noise
from innerloop.testing.closeness import (
    CHAINED,
    MULTIPLIED,
    ROUNDED,
    assert_mean,
    assert_trees_close,
    assert_trees_equal,
)
from innerloop.training import Plan, meta_gradient
from oracles import problems

STEP = noise.STEP


def lowbias32(z, salt):
    """The hash once more, in numpy's unsigned words."""
    z = (z ^ (z >> np.uint32(16))) * np.uint32(0x7FEB352D)
    z = z ^ salt
    z = (z ^ (z >> np.uint32(15))) * np.uint32(0x846CA68B)
    return z ^ (z >> np.uint32(16))


@pytest.mark.parametrize("step", [0, 1, 40_000, 12_345_678])
def test_words_are_the_hash_they_say(step):
    key = noise.key("layer", 3)
    low, high = np.uint32(key & 0xFFFFFFFF), np.uint32(key >> 32)
    with np.errstate(over="ignore"):
        first = lowbias32(np.uint32(step) + low, high)
        second = lowbias32(first, low)
        expected = lowbias32(np.arange(1000, dtype=np.uint32) + first, second)
    got = noise.words(torch.tensor(float(step)), key, 1000)
    np.testing.assert_array_equal(got.numpy().view(np.uint32), expected)


def test_words_are_uniform_and_unrelated():
    key, n = noise.key("layer"), 1 << 18
    draws = [
        noise.words(torch.tensor(float(s)), k, n) for s, k in ((0, key), (1, key), (0, noise.key("other")))
    ]
    for words in draws:
        for shift in (0, 8, 16, 24):
            counts = torch.bincount((words >> shift) & 255, minlength=256).double()
            chi = float(((counts - n / 256) ** 2 / (n / 256)).sum())
            assert abs(chi - 255) < 5 * (2 * 255) ** 0.5
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert_mean((draws[a] < 0).double().mul(2).sub(1) * (draws[b] < 0).double().mul(2).sub(1), 0.0)
    neighbours = (draws[0] < 0).double().mul(2).sub(1)
    assert_mean(neighbours[1:] * neighbours[:-1], 0.0)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_drops_its_share_and_keeps_the_mean(rate):
    x = torch.ones(16, 8, 10, 10, dtype=torch.float64)
    y = noise.dropout(x, with_noise({}), rate, noise.key("layer"))
    assert set(y.unique().tolist()) == {0.0, 1 / (1 - rate)}
    assert_mean(y == 0, rate)
    assert_mean(y, 1.0)


def share_and_blocks(side, block, step, rate=0.1, n=256, channels=16):
    x = torch.ones(n, channels, side, side, dtype=torch.float64)
    y = noise.dropblock(x, with_noise({}, step), rate, block, noise.key("layer"))
    return y == 0, y


@pytest.mark.parametrize(("side", "block"), [(4, 2), (2, 2), (10, 5), (5, 5), (3, 1), (2, 5)])
def test_dropblock_drops_whole_blocks_and_keeps_the_mean(side, block):
    gone, y = share_and_blocks(side, block, step=10**6)
    b = min(side, block)
    filled = gone.double().unfold(2, b, 1).unfold(3, b, 1).sum((-1, -2)) == b * b
    covered = torch.zeros_like(gone)
    for i in range(b):
        for j in range(b):
            covered[:, :, i : side - b + 1 + i, j : side - b + 1 + j] |= filled
    assert torch.equal(covered, gone)  # every zero lies in a block of zeros
    assert gone.any()
    assert float(y.mean()) == pytest.approx(1.0, abs=ROUNDED)


def test_dropblock_corners_have_the_stated_rate():
    """Where blocks cannot overlap the share is exact: one corner on a map as large as the block."""
    gone, _ = share_and_blocks(2, 2, step=10**6, n=4096)
    assert_mean(gone[:, :, 0, 0], 0.1 / 4 * 4)
    gone, _ = share_and_blocks(3, 1, step=10**6, n=1024)
    assert_mean(gone, 0.1)


@pytest.mark.parametrize(
    ("step", "part"), [(399, 0.01), (3_999, 0.1), (19_999, 0.5), (39_999, 1), (80_000, 1)]
)
def test_dropblock_ramps_up_over_forty_thousand_passes(step, part):
    gone, _ = share_and_blocks(2, 2, step, rate=0.8, n=2048)
    assert_mean(gone[:, :, 0, 0], 0.8 * part)


def test_dropblock_starts_from_almost_nothing():
    gone, _ = share_and_blocks(2, 2, step=0, rate=0.8, n=4096)
    assert int(gone[:, :, 0, 0].sum()) < 10  # 1.3 expected of 65,536


def test_a_rate_must_leave_something():
    for rate in (-0.1, 1.0):
        with pytest.raises(UserError, match="drop rate"):
            resnet12(3, 16, 2, drop_rate=rate)


# ---- in networks ----


def _module():
    layers = nn.Conv2d(1, 4, 3), nn.Dropout2d(0.3), nn.Flatten(), nn.ReLU(), nn.Dropout(0.4)
    return nn.Sequential(*layers, nn.Linear(4 * 14 * 14, 3))


NETWORKS = {
    "resnet12": resnet12(1, 16, 3, widths=(2, 3, 4, 4), norm="running", drop_rate=0.4),
    "wide": wide_resnet(1, 16, 3, depth=10, widen=1, norm="running", drop_rate=0.4),
    "module": from_module(_module),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_noise_is_on_exactly_if_the_counter_is_there(name):
    net = NETWORKS[name]
    params, buffers = problems.drawn(net)
    x = problems.images().x_query[0]
    quiet, after = net.features(params, buffers, x, "batch")
    assert net.noise
    assert STEP not in after
    noisy, after = net.features(params, with_noise(buffers, 50_000), x, "batch")
    assert float(after[STEP]) == 50_001
    assert not torch.allclose(noisy, quiet)
    again, _ = net.features(params, with_noise(buffers, 50_000), x, "batch")
    assert torch.equal(noisy, again)
    other, _ = net.features(params, after, x, "batch")
    assert not torch.equal(noisy, other)
    assert torch.equal(net.features(params, without_noise(with_noise(buffers)), x, "batch")[0], quiet)


def test_masks_depend_on_layer_and_seed():
    x = torch.ones(4, 4, 8, 8)
    masks = [
        noise.dropout(x, with_noise({}), 0.5, noise.key(layer, seed))
        for layer, seed in (("block0", 0), ("block1", 0), ("block0", 1))
    ]
    assert not torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    "plan",
    [
        Plan("threads", 2),
        Plan("vmap"),
        Plan("vmap", chunk=2),
        pytest.param(Plan("vmap", compile="trace"), marks=pytest.mark.slow),  # captured graphs take seconds
    ],
    ids=["threads", "vmap", "chunks", "trace"],
)
def test_all_modes_draw_the_same_masks(name, plan):
    net, batch = NETWORKS[name], problems.images(tasks=3)
    params, buffers = problems.drawn(net)
    loss = erm(net, get_loss("cross-entropy")).loss
    run, reference = meta_gradient(loss, plan), meta_gradient(loss, Plan("loop"))
    buffers = expected_buffers = with_noise(buffers, 60_000)
    for _ in range(2):  # the second pass has other masks: none may be frozen into a captured graph
        got, expected = run(params, buffers, batch), reference(params, expected_buffers, batch)
        assert_trees_close(got.grads, expected.grads, (CHAINED, MULTIPLIED))
        buffers, expected_buffers = got.buffers, expected.buffers
        assert round(float(buffers[STEP])) == float(expected_buffers[STEP])
    quiet = reference(params, without_noise(expected_buffers), batch)
    assert not torch.allclose(quiet.losses, expected.losses)


def test_a_counter_off_by_rounding_draws_the_same_mask():
    x, key = torch.ones(2, 2, 4, 4), noise.key("layer")
    exact = noise.dropout(x, {STEP: torch.tensor(7.0)}, 0.5, key)
    off = {STEP: torch.tensor(6.9999995)}
    assert torch.equal(exact, noise.dropout(x, off, 0.5, key))
    assert float(noise.advance(off)[STEP]) == 8  # and errors do not add up


def test_a_run_continues_from_its_buffers_bit_by_bit():
    net = NETWORKS["resnet12"]
    params, buffers = problems.drawn(net, dtype=torch.float32)
    run = meta_gradient(erm(net, get_loss("cross-entropy")).loss, Plan("loop"))
    batches = [problems.images(seed=s).to(dtype=torch.float32) for s in range(4)]

    def train(params, buffers, batches: list[TaskBatch]):
        for batch in batches:
            gradient = run(params, buffers, batch)
            params = {name: p - 0.05 * gradient.grads[name] for name, p in params.items()}
            buffers = gradient.buffers
        return params, buffers

    whole = train(params, with_noise(buffers), batches)
    half = train(params, with_noise(buffers), batches[:2])
    assert float(half[1][STEP]) == 2  # tasks of a batch share their masks: one pass per batch
    saved = tuple({name: value.clone() for name, value in tree.items()} for tree in half)
    assert_trees_equal(train(*saved, batches[2:])[0], whole[0])
