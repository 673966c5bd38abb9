"""Pictures: the catalogue of datasets, the publishers' archives, folders and arrays of one's own.

Nothing here imports torch: a source is numpy, mapped from disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.data.arrays import from_arrays as from_arrays
    from innerloop.data.arrays import from_dataset as from_dataset
    from innerloop.data.glyphs import glyphs as glyphs
    from innerloop.data.listing import DatasetSummary as DatasetSummary
    from innerloop.data.listing import Description as Description
    from innerloop.data.listing import SplitCounts as SplitCounts
    from innerloop.data.listing import contact_sheet as contact_sheet
    from innerloop.data.listing import describe as describe
    from innerloop.data.listing import list_datasets as list_datasets
    from innerloop.data.opening import open_source as open_source
    from innerloop.data.pictures import read_picture as read_picture
    from innerloop.data.source import ImageSource as ImageSource
    from innerloop.data.source import classes_of as classes_of
    from innerloop.data.source import labels as labels
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.data.arrays": "from_arrays from_dataset",
            "innerloop.data.glyphs": "glyphs",
            "innerloop.data.listing": (
                "DatasetSummary Description SplitCounts contact_sheet describe list_datasets"
            ),
            "innerloop.data.opening": "open_source",
            "innerloop.data.pictures": "read_picture",
            "innerloop.data.source": "ImageSource classes_of labels",
        },
    )
