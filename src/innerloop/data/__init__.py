"""Pictures: the catalogue of datasets, the publishers' archives, folders and arrays of one's own.

Nothing here imports torch: a source is numpy, mapped from disk.
"""

from __future__ import annotations

from innerloop.data.arrays import from_arrays as from_arrays
from innerloop.data.dataset import from_dataset as from_dataset
from innerloop.data.opening import open_source as open_source
from innerloop.data.pictures import read_picture as read_picture
from innerloop.data.source import ImageSource as ImageSource
from innerloop.data.source import classes_of as classes_of
from innerloop.data.source import labels as labels
