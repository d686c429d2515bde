"""Tests that are too slow for what they show beside the others."""

import os

import pytest

AT_NIGHT = "by `make nightly`"
at_night = pytest.mark.skipif("ALLOT_NIGHT" not in os.environ, reason=AT_NIGHT)
