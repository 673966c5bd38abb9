"""Kernels of infinitely wide networks, in closed form."""

from innerloop.kernels.analytic.networks import analytic_kernel as analytic_kernel
from innerloop.kernels.analytic.networks import conv_kernel as conv_kernel
from innerloop.kernels.analytic.networks import mlp_kernel as mlp_kernel
from innerloop.kernels.analytic.networks import residual_kernel as residual_kernel
