"""Measurements. Each says what it measures, on which data, and compares within one run only: machines differ."""
