"""Does a network behave?"""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.core.random import generator
from innerloop.nets.network import Network, apply
from innerloop.testing.closeness import close
from innerloop.testing.collect import Failures, copied, to_dtype


def check_network(network: Network, x: Tensor, reference: Tensor | None = None) -> None:
    """Pure, follows dtypes, draws from its generator only, and its head reads only ``head_names``.

    Args:
        network: the network.
        x: a batch of inputs.
        reference: what a module that the network was made from gives for ``x`` with the same weights.

    Raises:
        AssertionError: listing everything that failed.
    """
    failures = Failures("network")
    failures.attempt("network", lambda: _check(network, x, reference, failures))
    failures.report()


def _check(network: Network, x: Tensor, reference: Tensor | None, failures: Failures) -> None:
    params, buffers = network.init(generator(0, "check"))
    failures.expect(
        close(network.init(generator(0, "check"))[0], params), "init is not a function of its generator"
    )
    missing = [name for name in network.head_names if name not in params]
    failures.expect(not missing, f"head_names names no parameter: {missing}")
    before = copied((params, buffers, x))
    outputs, after = apply(network, params, buffers, x)
    failures.expect(close((params, buffers, x), before), "a forward pass changed its inputs")
    failures.expect(close(apply(network, params, buffers, x)[0], outputs), "a second forward pass differs")
    failures.expect(after.keys() == buffers.keys(), "the buffers given back have other names")
    if reference is not None:
        failures.expect(close(outputs, reference), "head(features(x)) is not what the module gives")
    features, _ = network.features(params, buffers, x, "batch")
    head_only = network.head({name: params[name] for name in network.head_names}, features)
    failures.expect(close(head_only, outputs), "the head reads parameters that head_names does not name")
    double = torch.float64
    wide, _ = apply(network, to_dtype(params, double), to_dtype(buffers, double), x.to(double))
    failures.expect(wide.dtype == double, f"float64 in gives {wide.dtype} out")
