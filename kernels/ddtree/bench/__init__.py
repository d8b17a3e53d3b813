"""Checks every kernel against float64 and times it against its floor and against what there is today."""
