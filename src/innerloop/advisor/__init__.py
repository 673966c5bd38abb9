"""What a few-shot problem needs, with evidence, before it is trained on in earnest: :func:`advise`.

Estimates come from :mod:`innerloop.advice`; where theory is silent, methods race on the problem's own tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.advisor.in_python import advise as advise
    from innerloop.advisor.result import Advice as Advice
    from innerloop.advisor.result import HardGroup as HardGroup
    from innerloop.advisor.result import HardnessPart as HardnessPart
    from innerloop.advisor.result import LandscapePart as LandscapePart
    from innerloop.advisor.result import RatePart as RatePart
    from innerloop.advisor.result import Recommendation as Recommendation
    from innerloop.advisor.result import Row as Row
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.advisor.in_python": "advise",
            "innerloop.advisor.result": (
                "Advice HardGroup HardnessPart LandscapePart RatePart Recommendation Row"
            ),
        },
    )
