"""Kernels that meta-learners train with, and what they predict."""

from innerloop.kernels.meta.descent import Descent as Descent
from innerloop.kernels.meta.kernel import anil_kernel as anil_kernel
from innerloop.kernels.meta.kernel import anil_kernel_without_split as anil_kernel_without_split
from innerloop.kernels.meta.kernel import maml_kernel as maml_kernel
from innerloop.kernels.meta.kernel import mtl_kernel as mtl_kernel
