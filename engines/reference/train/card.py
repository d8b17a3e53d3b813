"""The README.md that goes with a checkpoint."""

from collections.abc import Mapping
from typing import Any

from engines.reference.train.drafter import DrafterConfig

TEMPLATE = """---
license: apache-2.0
library_name: transformers
tags: [speculative-decoding, dflash]
---

# {name}

A DFlash block-diffusion drafter for {target}: {layers} layers, {parameters:.1f} M parameters in bfloat16, block size
{block} (the seed token and {drafts} predicted). It drafts; the target verifies and decides every token. Embeddings and
LM head are the target's. Its context is the output of target layers {target_layers} (`hidden_states[i + 1]`), its mask
token is {mask_token}.{status}

## How it was trained

`python -m engines.reference.train`, {train_seconds:.0f} seconds of training in a run of {run_seconds:.0f} seconds on
{device}, {start}.

1. Prompts: the target writes the user turn itself, half of them at T=1 and half at T=0.7, after its chat template, a
   task opener (chat, code, maths, rewriting) and a seed word. {given}
2. Responses: {tokens:.2f} M tokens of {conversations} conversations, two thirds greedy, one third at T=0.7, at most
   {response_tokens} tokens each.
3. {anchors} random anchors a conversation and step, {batch} conversations a step, {steps} steps; block inputs
   `[seed, MASK x {drafts}]`; a block attends to the context strictly before its seed and to itself in both directions;
   labels: {loss}; position k weighs exp(-(k-1)/{gamma:g}); {optimiser}, {lr:g} falling to zero on a cosine.

Exact arguments, versions, losses and every evaluation: `training.json`.

## What it reaches

Offline replay of the target's own greedy text on held-out prompts of the same kind ({held_out} conversations).
Acceptance length = tokens emitted per verify step, the bonus token counted.

| draft | acceptance length |
| --- | --- |
{rows}

Share of anchors whose most probable draft token is the target's, by position: {positions}.

Trained on responses of at most {response_tokens} tokens in single-turn English chats; longer contexts, other languages
and other chat templates were not measured. Licence: Apache-2.0.
"""

UNFINISHED = "\n\n**This run is not finished: the numbers below can be older than the weights.**"
LABELS = {
    "ce": "the tokens",
    "kl": "the target's distribution",
    "mix": "half the tokens, half the target's distribution",
}


def model_card(name: str, config: DrafterConfig, record: Mapping[str, Any]) -> str:
    """The card for a training record as `run` writes it; numbers are the last evaluation's that had trees."""
    arguments, data = record["arguments"], record["data"]
    measured = [item for item in record["evaluations"] if item["tree"]] or record["evaluations"]
    last = measured[-1]
    rows = [f"| linear, {config.block_size - 1} drafts | {last['linear']:.2f} |"]
    rows += [f"| best-first tree, budget {budget} | {length:.2f} |" for budget, length in last["tree"].items()]
    finished = record["status"] == "finished"
    return TEMPLATE.format(
        name=name,
        target=record["target"],
        layers=config.num_layers,
        parameters=record["parameters"] / 1e6,
        block=config.block_size,
        drafts=config.block_size - 1,
        target_layers=", ".join(map(str, config.target_layer_ids)),
        mask_token=config.mask_token_id,
        status="" if finished else UNFINISHED,
        train_seconds=record["train_seconds"],
        run_seconds=record["run_seconds"],
        device=record["versions"]["device"],
        start=f"starting from {arguments['init']}" if arguments["init"] else "from random weights",
        given="Before these, user turns from a file." if arguments["prompts"] else "No data set.",
        tokens=data["response_tokens"] / 1e6,
        conversations=data["conversations"],
        response_tokens=data["longest_response"],
        anchors=arguments["anchors"],
        batch=arguments["conversations"],
        steps=record["steps"],
        loss=LABELS[arguments["loss"]],
        gamma=arguments["gamma"],
        optimiser={"adamw": "AdamW", "muon": "Muon for matrices and AdamW for norms"}[arguments["optimiser"]],
        lr=arguments["lr"],
        held_out=last["conversations"],
        rows="\n".join(rows),
        positions=", ".join(f"{share:.2f}" for share in last["position_accuracy"]),
    )
