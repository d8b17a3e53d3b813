"""The server's command line and environment: what an arm becomes."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest

from engines.base import Arm, EngineError, Method
from engines.sglang import report
from engines.sglang.adapter import SglangEngine
from tests.engines.sglang.acting import arm, deployment, tree
from tests.engines.sglang.server import parse

ENGINE = SglangEngine()
PLAIN = arm(Method.AUTOREGRESSIVE)
NO_PLUGIN = "sglang 0.5.17, torch 2.11.0"


def options(subject: Arm, monkeypatch: pytest.MonkeyPatch, **changes: object) -> argparse.Namespace:
    """The command as the server reads it, in the arm's environment."""
    deployed = deployment(**changes)
    for name, value in ENGINE.env(subject, deployed).items():
        monkeypatch.setenv(name, value)
    line = ENGINE.command(subject, deployed, 8123)
    return parse(line[line.index("sglang.launch_server") + 1 :])


def test_the_command_says_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ENGINE.command(PLAIN, deployment(), 8123)[1:3] == ["-m", "sglang.launch_server"]
    found = options(PLAIN, monkeypatch, arguments=("--mem-fraction-static", "0.3"))
    assert (found.model_path, found.served_model_name, found.dtype) == ("/models/target", "target", "bfloat16")
    assert (found.context_length, found.max_running_requests, found.cuda_graph_max_bs_decode) == (512, 4, 4)
    assert (found.host, found.port, found.nccl_port) == ("127.0.0.1", 8123, 8124)
    assert (found.random_seed, found.mem_fraction_static) == (0, 0.3)
    assert (found.attention_backend, found.sampling_backend, found.grammar_backend) == (None, "pytorch", "none")
    assert found.disable_radix_cache
    assert found.enable_metrics
    assert found.incremental_streaming_output
    assert found.speculative_algorithm is None


def test_arms_differ_in_speculation_and_attention_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = vars(options(PLAIN, monkeypatch))
    chain = vars(options(arm(Method.DFLASH), monkeypatch))
    assert {name: value for name, value in chain.items() if value != plain[name]} == {
        "speculative_algorithm": "DFLASH",
        "speculative_draft_model_path": "/models/drafter",
    }
    branching = vars(options(tree(), monkeypatch))
    assert {name: value for name, value in branching.items() if value != chain[name]} == {
        "attention_backend": "ddtree",
        "speculative_algorithm": "DDTREE",
        "speculative_draft_attention_backend": "triton",
    }


def test_options_become_flags_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    found = options(arm(Method.DFLASH, block_size=4, attention_backend="fa3", radix_cache=True), monkeypatch)
    assert (found.speculative_dflash_block_size, found.disable_radix_cache) == (4, False)
    assert (found.attention_backend, found.speculative_draft_attention_backend) == ("fa3", "fa3")
    found = options(tree(prefill_attention_backend="flashinfer"), monkeypatch)
    assert (found.attention_backend, found.prefill_attention_backend) == ("ddtree", "flashinfer")
    told = ENGINE.env(tree(31, chain=True, attention="stock", block_size=4, topk=6), deployment())
    assert {name: told[name] for name in told if name.startswith("DDTREE")} == {
        "DDTREE_BUDGET": "31",
        "DDTREE_CHAIN": "1",
        "DDTREE_ATTENTION": "stock",
        "DDTREE_BLOCK_SIZE": "4",
        "DDTREE_TOPK": "6",
        "DDTREE_LADDER": "",
        "DDTREE_CONTEXT": "",
    }
    assert told["SGLANG_PLUGINS"] == "ddtree"
    automatic = ENGINE.env(tree(63, policy="auto"), deployment())
    assert (automatic["DDTREE_BUDGET"], automatic["DDTREE_MAX_BUDGET"]) == ("auto", "63")
    own = ("DDTREE_BLOCK_SIZE", "DDTREE_TOPK", "DDTREE_CONTEXT")
    assert [automatic[name] for name in own] == ["", "", ""], "inherited ones do not count"
    assert automatic["DDTREE_ATTENTION"] == "kernel"


def test_stock_arms_load_no_plugin() -> None:
    told = ENGINE.env(arm(Method.DFLASH), deployment(environment={"SGLANG_PLUGINS": "mine", "NCCL_DEBUG": "INFO"}))
    assert (told["SGLANG_PLUGINS"], told["NCCL_DEBUG"]) == ("none", "INFO")
    assert not any(name.startswith("DDTREE") for name in told)


def test_a_tree_s_server_is_told_where_to_report_by_its_port() -> None:
    line = ENGINE.command(tree(), deployment(), 8123)
    assert line[:2] == ["env", f"DDTREE_REPORT={report.path(8123)}"]
    assert report.path(8123) != report.path(8124)


def test_a_release_listens_where_it_is_told() -> None:
    line = ENGINE.serve(arm(Method.DFLASH), deployment(), "0.0.0.0", 80)
    measured = ENGINE.command(arm(Method.DFLASH), deployment(), 80)
    at = measured.index("--nccl-port")
    assert line == ["0.0.0.0" if word == "127.0.0.1" else word for word in measured[:at] + measured[at + 2 :]]


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        (arm(Method.NGRAM), "engine sglang has no method ngram; it has autoregressive, ddtree, dflash"),
        (arm(Method.DDTREE), "`budget` is required for method ddtree"),
        (replace(PLAIN, budget=7), "`budget` is required for method ddtree and not allowed for any other"),
        (tree(chain=True, policy="auto"), "`chain` is one fixed shape: it cannot go with the option policy: auto"),
        (arm(Method.AUTOREGRESSIVE, block_size=3), "no option 'block_size' for autoregressive; it has attention_backe"),
        (tree(attention_backend="fa3"), "no option 'attention_backend' for ddtree"),
        (tree(policy="clever"), "option 'policy' of engine sglang must be fixed or auto, got 'clever'"),
        (tree(attention=1), "must be kernel or stock, got 1"),
        (tree(prefill_attention_backend="fa4"), "must be ddtree or fa3 or flashinfer or triton, got 'fa4'"),
        (arm(Method.DFLASH, prefill_attention_backend="fa3"), "no option 'prefill_attention_backend' for dflash"),
        (tree(topk=0), "must be a positive integer, got 0"),
        (tree(topk=True), "must be a positive integer, got True"),
        (arm(Method.DFLASH, radix_cache="yes"), "must be true or false, got 'yes'"),
    ],
)
def test_what_the_engine_cannot_do_is_refused(subject: Arm, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        ENGINE.validate(subject, deployment())


@pytest.mark.parametrize(
    "argument",
    [
        "--attention-backend",
        "--attention-backend=fa3",
        "--decode-attention-backend",
        "--speculative-num-draft-tokens",
        "--spec",
        "--port=1",
        "--dtype",
        "--model",
        "--cuda-graph-max-bs",
        "--config",
        "--nccl-port",
    ],
)
def test_arguments_that_would_contradict_the_arm_are_refused(argument: str) -> None:
    with pytest.raises(EngineError, match=f"argument {argument.partition('=')[0]} of engine sglang is the arm's"):
        ENGINE.validate(PLAIN, deployment(arguments=(argument, "7")))


@pytest.mark.parametrize("argument", ["--dp-size", "--dp=2", "--data-parallel-size"])
def test_replicas_of_one_server_meet_at_ports_of_sglangs(argument: str) -> None:
    assert "--nccl-port" not in ENGINE.command(PLAIN, deployment(arguments=(argument, "2")), 1)


@pytest.mark.parametrize("argument", ["--mem-fraction-static", "--disable-overlap-schedule", "--chunked-prefill-size"])
def test_other_arguments_come_last(argument: str) -> None:
    ENGINE.validate(PLAIN, deployment(arguments=(argument,)))
    assert ENGINE.command(PLAIN, deployment(arguments=(argument,)), 1)[-1] == argument


def test_a_deployment_must_fit_the_arm() -> None:
    with pytest.raises(EngineError, match=r"SGLang 0\.5\.17 cannot run on device cpu: it needs cuda"):
        ENGINE.validate(PLAIN, deployment(device="cpu"))
    with pytest.raises(EngineError, match=r"needs a drafter: set `models\.drafter` in the profile"):
        ENGINE.validate(tree(), deployment(drafter=None))
    with pytest.raises(EngineError, match="has no ddtree plugin: install this project's kernels folder"):
        ENGINE.validate(tree(), deployment(software=NO_PLUGIN))
    ENGINE.validate(arm(Method.DFLASH), deployment(software=NO_PLUGIN))


def test_variables_of_the_profile_are_not_the_arm_s() -> None:
    with pytest.raises(EngineError, match="DDTREE_TOPK is the arm's to set, by an option; remove it"):
        ENGINE.validate(tree(), deployment(environment={"DDTREE_TOPK": "4"}))


def test_invented_acceptance_is_refused() -> None:
    with pytest.raises(EngineError, match="SGLANG_SIMULATE_ACC_LEN makes SGLang invent acceptance; remove it"):
        ENGINE.validate(PLAIN, deployment(environment={"SGLANG_SIMULATE_ACC_LEN": "6"}))
    assert ENGINE.env(PLAIN, deployment())["SGLANG_SIMULATE_ACC_LEN"] == "-1", "an inherited one does not count"
