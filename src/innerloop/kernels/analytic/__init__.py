"""Layers of infinitely wide networks: what :func:`innerloop.kernels.analytic_kernel` puts together."""

from innerloop.kernels.analytic.activations import activation as activation
from innerloop.kernels.analytic.activations import erf as erf
from innerloop.kernels.analytic.activations import leaky_relu as leaky_relu
from innerloop.kernels.analytic.activations import linear as linear
from innerloop.kernels.analytic.activations import relu as relu
from innerloop.kernels.analytic.layers import conv as conv
from innerloop.kernels.analytic.layers import dense as dense
from innerloop.kernels.analytic.layers import flatten as flatten
from innerloop.kernels.analytic.layers import global_average_pool as global_average_pool
from innerloop.kernels.analytic.layers import layer_norm as layer_norm
from innerloop.kernels.analytic.layers import residual as residual
from innerloop.kernels.analytic.layers import serial as serial
from innerloop.kernels.analytic.state import Layer as Layer
from innerloop.kernels.analytic.state import State as State
