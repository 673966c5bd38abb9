"""Kernels of networks, analytic (infinite width) and empirical (a given network), and of meta-learners."""

from innerloop.kernels.analytic import analytic_kernel as analytic_kernel
from innerloop.kernels.analytic import conv_kernel as conv_kernel
from innerloop.kernels.analytic import mlp_kernel as mlp_kernel
from innerloop.kernels.analytic import residual_kernel as residual_kernel
from innerloop.kernels.blockwise import blockwise as blockwise
from innerloop.kernels.empirical import empirical_kernel as empirical_kernel
from innerloop.kernels.empirical import empirical_nngp as empirical_nngp
from innerloop.kernels.empirical import empirical_ntk as empirical_ntk
from innerloop.kernels.empirical import exact_metantk as exact_metantk
from innerloop.kernels.meta import Descent as Descent
from innerloop.kernels.meta import anil_kernel as anil_kernel
from innerloop.kernels.meta import anil_kernel_without_split as anil_kernel_without_split
from innerloop.kernels.meta import maml_kernel as maml_kernel
from innerloop.kernels.meta import mtl_kernel as mtl_kernel
from innerloop.kernels.types import KernelFunction as KernelFunction
from innerloop.kernels.types import Kernels as Kernels
