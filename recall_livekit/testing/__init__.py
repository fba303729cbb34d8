"""Shipped for tests: fakes, faults and the conformance suite."""
