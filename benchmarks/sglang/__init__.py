"""What is proved of the SGLang plugin on a GPU. Each module is a program that writes one JSON file of results.

They start servers by the adapter's own command line, so what is proved is what `orchestrate sweep` runs.
"""
