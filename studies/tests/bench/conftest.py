"""What tests of several benchmarks need."""

from __future__ import annotations

import pytest

from innerloop_studies.bench import environments
from innerloop_studies.bench.environments import Environment


@pytest.fixture
def jax_here() -> Environment:
    """The environment in which JAX is installed; without one the test is skipped."""
    found = environments.find("jax", lambda line: None)
    if found is None:
        pytest.skip("JAX is not installed: `innerloop bench maml-sine --install-peers` brings it")
    return environments.jax_devices(found, 1)
