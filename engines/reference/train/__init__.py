"""Trainer for DFlash drafters: `python -m engines.reference.train --target FOLDER --out FOLDER`.

The target writes its own training set, its hidden states are the drafter's context, and its tokens are the labels.
"""
