"""Measurements. Each module's docstring names its subject and its data; figures are compared within one run only."""
