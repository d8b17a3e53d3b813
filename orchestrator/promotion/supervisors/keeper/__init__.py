"""Keeps a server running without root: a process that starts it, starts it again when it fails, and ends it.

Standard library only and relative imports: `archive.build` packs these modules into one file that runs on a host where
nothing but Python 3.11 is installed, as `python3 -IS keeper.pyz start FOLDER` and the like.
"""
