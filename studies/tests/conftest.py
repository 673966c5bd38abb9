"""The fixtures of the library's tests."""

from conftest import *  # noqa: F403
