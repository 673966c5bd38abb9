"""Residual networks of finite and infinite width (Bridge, Corollary 1.1), and kernels by name."""

from __future__ import annotations

import pytest
import torch

from innerloop.core.errors import UserError
from innerloop.kernels import empirical_kernel, residual_kernel
from innerloop.kernels.analytic.networks import network_kernel, tabulated
from innerloop.nets.network import apply
from innerloop.nets.residual import NETWORKS, NORMS, residual_mlp, wide_network
from innerloop.testing.closeness import assert_close

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def drawn(net, seed):
    return {name: p.double() for name, p in net.init(torch.Generator().manual_seed(seed))[0].items()}


@pytest.mark.parametrize("norm", NORMS)
def test_random_networks_approach_the_analytic_kernels(norm: str) -> None:
    """The mean square of single draws falls like 1/width, and their mean is the limit within its scatter."""
    exact, draws, scatter = residual_kernel(3, norm=norm)(X, X), 24, []
    for width in (32, 256):
        net = residual_mlp(6, width, 3, 1, norm=norm)
        drawn_kernels = [empirical_kernel(net, drawn(net, seed))(X, X) for seed in range(draws)]
        off = [torch.stack([one[kind] for one in drawn_kernels]) - exact[kind] for kind in range(2)]
        scatter.append([float(each.square().sum() / draws) for each in off])
    for kind in range(2):
        assert scatter[1][kind] < scatter[0][kind] / 4  # 8 is expected
        # unbiased, the mean of n draws has 1/n of the square of one; a wrong limit would have all of it
        assert float(off[kind].mean(0).square().sum()) < 9 / draws * scatter[1][kind]


@pytest.mark.parametrize("blocks", [0, 1, 5])
def test_layer_norm_on_the_stream_takes_the_scale_out_and_nothing_else(blocks: int) -> None:
    """ReLU is homogeneous: both kernels have the factor √(Σ(x,x)Σ(x',x')), which LayerNorm removes."""
    plain, normed = residual_kernel(blocks)(X, X), residual_kernel(blocks, norm="stream")(X, X)
    size = plain.nngp.diagonal().sqrt()
    for one, other in zip(plain, normed, strict=True):
        assert_close(other, one / size[:, None] / size[None])


def test_the_forward_pass_is_the_formula() -> None:
    net = residual_mlp(6, 5, 2, 3, norm="branch")
    params = drawn(net, 0)
    w = [params[f"layer{i}.weight"] * (2 / n) ** 0.5 for i, n in enumerate((6, 5, 5, 5))]

    def normed(h):
        return (h - h.mean(1, keepdim=True)) / h.std(1, keepdim=True, correction=0)

    h = X @ w[0].T
    for i in (1, 2):
        h = h + normed(h).relu() @ w[i].T
    assert_close(apply(net, params, {}, X)[0], h.relu() @ w[3].T)


@pytest.mark.parametrize("name", NETWORKS)
def test_names_mean_the_same_network_at_every_width(name: str) -> None:
    exact = network_kernel(name, 4)(X, X)
    net = wide_network(name, 6, 1024, 4)
    params = drawn(net, 1)
    assert len(params) == 4  # layers with weights
    kernels = empirical_kernel(net, params)(X, X)
    for a, b in zip(kernels, exact, strict=True):
        assert float((a - b).norm() / b.norm()) < 0.15


def test_kept_kernels_are_the_kernels() -> None:
    net = wide_network("residual", 6, 16, 3)
    kernel = empirical_kernel(net, drawn(net, 0))
    kept = tabulated(kernel, X)
    for a, b in zip(kept(X[2:], X[:3]), kernel(X[2:], X[:3]), strict=True):
        assert_close(a, b)
    with pytest.raises(UserError, match="other inputs"):
        kept(X + 1, X)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: residual_mlp(2, 4, 1, 1, norm="streams"), "did you mean 'stream'"),
        (lambda: residual_mlp(2, 4, 1, 1, activation="rely"), "did you mean 'relu'"),
        (lambda: network_kernel("residual", 1), "depth=2"),
        (lambda: wide_network("residul", 2, 4, 3), "did you mean 'residual'"),
    ],
)
def test_mistakes_have_their_fix(make, text: str) -> None:
    with pytest.raises(UserError, match=text):
        make()
