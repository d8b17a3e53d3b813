"""DDTree for SGLang: a plugin, no fork and no patched file.

SGLang loads `plugin:activate` through the entry point group `sglang.srt.plugins`, in each of its processes. Importing
this package imports neither SGLang nor torch's CUDA parts; `symbols` names everything of SGLang's that is relied on.
"""
