"""Builders and worlds shared by the tests."""
