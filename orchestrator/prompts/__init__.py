"""Prompts: the product's own set, loaders for public ones, and the deal into blocks."""

from orchestrator.prompts.errors import PromptError
from orchestrator.prompts.loading import load_prompts
from orchestrator.prompts.prompt import Prompt, PromptSet, content_hash
from orchestrator.prompts.selection import blocks

__all__ = ["Prompt", "PromptError", "PromptSet", "blocks", "content_hash", "load_prompts"]
