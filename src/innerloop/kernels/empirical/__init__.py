"""Kernels of given networks of finite width."""

from innerloop.kernels.empirical.exact import exact_metantk as exact_metantk
from innerloop.kernels.empirical.kernel import empirical_kernel as empirical_kernel
from innerloop.kernels.empirical.kernel import empirical_nngp as empirical_nngp
from innerloop.kernels.empirical.kernel import empirical_ntk as empirical_ntk
