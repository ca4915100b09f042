"""Measuring Wren as a person meets it: recordings played in real time through the live path, and others beside it."""
