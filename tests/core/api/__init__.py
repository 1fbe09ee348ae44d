"""Tests of core.api."""
