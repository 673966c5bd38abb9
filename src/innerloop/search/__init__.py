"""Architecture search: the spaces that are searched, and how large their networks are."""

from innerloop.search.size import Size as Size
from innerloop.search.size import count_parameters as count_parameters
from innerloop.search.size import network_size as network_size
from innerloop.search.space import Space as Space
from innerloop.search.space import candidates as candidates
from innerloop.search.space import random_candidate as random_candidate
from innerloop.search.space import random_of_size as random_of_size
from innerloop.search.space import size_of as size_of
from innerloop.search.spaces import SPACES as SPACES
from innerloop.search.spaces import ConvVariant as ConvVariant
from innerloop.search.spaces import cell_space as cell_space
from innerloop.search.spaces import conv_space as conv_space
from innerloop.search.spaces import get_space as get_space
