"""Pictures: the catalogue of datasets, the publishers' archives, folders and arrays of one's own."""

from __future__ import annotations

from innerloop.data.source import ImageSource as ImageSource
from innerloop.data.source import classes_of as classes_of
from innerloop.data.source import labels as labels
