"""SGLang's DFlash worker with a tree in place of the chain.

Kept from DFlashWorkerV2: the draft model, prefill, and the injection of the target's features into the drafter's KV.
Ours: candidates instead of an argmax, the tree, its verification, acceptance and compaction. A step launches one small
kernel and four graphs (draft, grow, verify, commit) and never waits for the GPU.
"""

import os
from typing import Any

import torch
from sglang.srt.distributed import get_tp_group
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner
from sglang.srt.speculative.dflash_info import DFlashVerifyInput
from sglang.srt.speculative.dflash_utils import apply_dflash_verify_logits_adjustments
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2
from sglang.srt.speculative.draft_worker_common import (
    build_block_pos_offsets,
    make_draft_block_spec_info,
    make_draft_input_v2,
)
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from ddtree.compact import PoolTable
from ddtree.sglang import limits, profile, report, selfcheck
from ddtree.sglang.backends import DDTreeAttnBackend, DDTreeDraftAttnBackend, verifying
from ddtree.sglang.chooser import Chooser
from ddtree.sglang.commit import Sampling
from ddtree.sglang.heads import CandidateHead
from ddtree.sglang.hooks import check_hooks
from ddtree.sglang.lanes import Lane
from ddtree.sglang.policy import WidthPolicy
from ddtree.sglang.prepare import Block, prepare
from ddtree.sglang.probe import Probe
from ddtree.sglang.requests import Requests, plan
from ddtree.sglang.settings import Settings
from ddtree.sglang.stage import Stages, workspace
from ddtree.sglang.trees import Candidates, Outcome, Verify


def target_backend(runner: Any, settings: Settings) -> DDTreeAttnBackend:
    """The attention backend `ddtree`, with buffers for every request that may run: SGLang captures no larger batch."""
    if settings.block_size is None:
        raise RuntimeError("DDTREE_BLOCK_SIZE is not set: is --speculative-algorithm DDTREE missing?")
    limits.refuse(runner)
    width = settings.width(settings.block_size)
    verify = Verify.empty(runner.req_to_token_pool.size, width, settings.block_size - 1, runner.device)
    return DDTreeAttnBackend(runner, verify, settings.attention)


class DDTreeWorker(DFlashWorkerV2):  # type: ignore[misc]
    """One worker a tensor-parallel rank; every rank builds the same trees and accepts the same paths."""

    def __init__(self, server_args: Any, **kwargs: Any) -> None:
        super().__init__(server_args=server_args, **kwargs)
        check_hooks()
        self.settings = Settings.of(os.environ)
        assert self.settings.block_size is not None
        self.block_size = self.settings.block_size
        limits.refuse_drafter(self)
        self._say_block_size()
        self._block_pos_offsets = build_block_pos_offsets(length=self.block_size, device=self.device)
        self._draft_block_spec_info = make_draft_block_spec_info(draft_token_num=self.block_size, device=self.device)
        self._steps = 0
        self._chooser: Chooser | None = None
        self._verify_outputs: dict[tuple[int, int], Any] = {}
        self.model_runner.capture_tail_hooks.append(self._keep_outputs)

    def _say_block_size(self) -> None:
        """What DFlashWorkerV2 of 0.5.23 set for a verify as wide as a block, and for whole logits only if asked."""
        if hasattr(self.draft_model, "set_block_size"):
            self.draft_model.set_block_size(self.block_size)
        logits = getattr(self, "_target_logits_processor", None)
        if logits is not None:
            logits.defer_verify_gather = False

    def _keep_outputs(self, runner: Any, out: Any, forward_batch: Any, num_tokens: int) -> None:
        """The outputs of a captured verify graph, which the graph of the commit reads."""
        rows = forward_batch.batch_size
        self._verify_outputs[num_tokens // rows, rows] = out

    def init_attention_backends(self) -> None:
        super().init_attention_backends()
        self.backend = verifying(self.model_runner.attn_backend)
        rows = self.backend.verify.slots.shape[0]
        if self.settings.attention == "kernel":
            draft = DDTreeDraftAttnBackend(self.draft_model_runner, self.block_size, rows)
            self.draft_model_runner.attn_backend = draft
        self.drafts = Candidates.empty(rows, self.block_size - 1, self.settings.candidates, self.device)
        self.block = Block.empty(rows, self.block_size, self.device)
        self.sampling = Sampling.empty(rows, self.device)

    def init_cuda_graphs(self) -> None:
        self._head = self._candidate_head()
        super().init_cuda_graphs()
        pool = self.model_runner.token_to_kv_pool
        self.pools = PoolTable.of([*pool.k_buffer, *pool.v_buffer])
        steps = self.settings.widths(self.block_size)
        rows = self.drafts.rows
        probe = Probe(rows, self.drafts.depth, steps, self.device) if len(steps) > 1 else None
        self.lanes = [self._lane(width, probe) for width in steps]
        checked = selfcheck.run(self)
        cost = None
        if probe is not None:
            cost = profile.measure(self)
            self._chooser = Chooser(WidthPolicy(steps, cost), probe)
        context = self._ready()
        if get_tp_group().rank_in_group == 0 and self.settings.report is not None:
            measured = cost.as_json() if cost else None
            report.write(self.settings.report, self.settings, steps, context, measured, checked)

    def prewarm_sampling(self) -> Any:
        """0.5.23 rehearses what follows the target alone, and not stock DFlash's sampling, which never runs here."""
        return self.model_runner.prewarm_sampling()

    def _ready(self) -> int:
        """Leave SGLang as if no step had run, and keep every request inside its row of req_to_token. The context that
        is served.
        """
        runner = self.model_runner
        runner.war_fastpath_read_done_event = None
        runner.shared_read_done_event = None  # the same in 0.5.23
        return limits.serve_context(runner, self.backend.verify.width, self.settings.context)

    def _lane(self, width: int, probe: Probe | None) -> Lane:
        """SGLang captured the widest one already."""
        runner, backend = self.model_runner.decode_cuda_graph_runner, self.backend
        if width != backend.verify.width:
            verify = Verify.empty(self.drafts.rows, width, self.drafts.depth, self.device)
            backend = DDTreeAttnBackend(self.model_runner, verify, self.settings.attention)
            if isinstance(runner, DecodeCudaGraphRunner):
                runner = DecodeCudaGraphRunner(
                    self.model_runner, attn_backend=backend, speculative_num_draft_tokens=width
                )
        stages = Stages(backend.verify, self.drafts, self.sampling, self.pools, self._inject, self.settings, probe)
        stages.capture({rows: out for (wide, rows), out in self._verify_outputs.items() if wide == width})
        return Lane(backend, runner, stages, workspace(self._fused_kv_helper))

    def _maybe_build_draft_sampler(self) -> CandidateHead:
        return self._head

    def _candidate_head(self) -> CandidateHead:
        head = self.target_worker.model_runner.model.lm_head
        group = get_tp_group()
        shard = getattr(head, "shard_indices", None)
        weight = head.weight if shard is None else head.weight[: shard.num_org_elements]
        offset = 0 if shard is None else shard.org_vocab_start_index
        return CandidateHead(weight, offset, self.block_size, self.drafts, group if group.world_size > 1 else None)

    def _inject(
        self, features: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, lengths: torch.Tensor
    ) -> None:
        """An `Inject` of `commit`."""
        self._append_target_hidden_to_draft_kv_by_loc(
            target_hidden=features,
            cache_loc=slots.reshape(-1),
            cache_loc_2d=slots,
            positions=positions.reshape(-1),
            commit_lens=lengths,
        )

    def forward_batch_generation(self, batch: Any, on_publish: Any = None, **kwargs: Any) -> GenerationBatchResult:
        """A prefill or an idle batch as in DFlash; a decode batch as one DDTree step."""
        mode = batch.forward_mode
        if mode.is_extend() or batch.is_extend_in_batch or mode.is_idle() or batch.spec_info is None:
            if self._chooser is not None:
                self._chooser.interrupt()
            return super().forward_batch_generation(batch, on_publish, **kwargs)
        # Carried over from the step before, which ran on another stream.
        batch.seq_lens.record_stream(torch.get_device_module(self.device).current_stream())
        requests = self._requests(batch)
        lane = self._choose(requests)
        outcome, logits_output, captured = self.step(requests, lane)
        count = requests.count
        lengths = outcome.prefix(count)
        if on_publish is not None:
            on_publish(lengths)
        result = GenerationBatchResult(
            logits_output=logits_output,
            next_token_ids=outcome.emitted(count),
            accept_lens=outcome.lengths(count),
            can_run_cuda_graph=captured,
            next_draft_input=make_draft_input_v2(bonus_tokens=outcome.bonus(count), new_seq_lens=lengths),
            speculative_num_draft_tokens=self.block_size,
            new_seq_lens=lengths,
        )
        if self._chooser is not None:
            result.cap_lens = torch.full((count,), lane.width, dtype=torch.int32, device=self.device)
        return result

    def _choose(self, requests: Requests) -> Lane:
        if self._chooser is None:
            return self.lanes[0]
        return self.lanes[self._chooser.choose(requests.count, requests.host_total / requests.count)]

    def on_verify_complete_cpu(self, num_correct_drafts_per_req: list[int], batch_size: int = 0) -> None:
        """SGLang calls this once for each decode batch, in their order, when its results are on the host."""
        if self._chooser is not None:
            self._chooser.learn(num_correct_drafts_per_req)

    def _requests(self, batch: Any) -> Requests:
        """Host lengths lag a step behind in overlap scheduling, hence the margin of a whole tree."""
        if batch.seq_lens_cpu is not None:
            host = batch.seq_lens_cpu + self.backend.verify.width
        else:
            host = torch.tensor([request.kv.kv_allocated_len for request in batch.reqs])
        last, sampling = batch.spec_info.bonus_tokens, batch.sampling_info
        return Requests(batch.req_pool_indices, batch.seq_lens, last, host, int(host.sum()), sampling)

    def step(self, requests: Requests, lane: Lane) -> tuple[Outcome, Any, bool]:
        """Draft, grow, verify, commit. Gives the outcome, SGLang's logits output and whether the verify was a graph."""
        rows = lane.stages.rows_for(requests.count)
        verify, drafts = lane.backend.verify.first(rows), self.drafts.first(rows)
        prepare(
            requests.last,
            requests.lengths,
            requests.pool_rows,
            self.model_runner.req_to_token_pool.req_to_token,
            self._mask_token_id,
            drafts,
            self.block.first(rows),
            verify,
        )
        self._draft(requests)
        lane.stages.grow(rows)
        if self._chooser is not None:
            self._chooser.look()
        out = self._verify(requests, verify, lane)
        logits = out.logits_output
        greedy = self._adjust(requests, logits.next_token_logits, lane.width)
        if out.can_run_graph:
            outcome = lane.stages.commit(rows, greedy)
        else:
            outcome = lane.stages.commit_eager(requests.count, logits, greedy)
        logits.hidden_states = None  # large, and copied to the host otherwise
        self._steps += 1
        return outcome, logits, out.can_run_graph

    def _draft(self, requests: Requests) -> None:
        block = self.block.first(requests.count)
        embed = self.model_runner.model.get_input_embeddings()
        batch = ForwardBatch(
            forward_mode=ForwardMode.TARGET_VERIFY,
            batch_size=requests.count,
            input_ids=block.ids.view(-1),
            req_pool_indices=requests.pool_rows,
            seq_lens=requests.lengths,
            out_cache_loc=block.slots.view(-1),
            seq_lens_sum=requests.host_total,
            seq_lens_cpu=requests.host_lengths,
            positions=block.positions.view(-1),
            input_embeds=embed(block.ids.view(-1)),
            spec_algorithm=SpeculativeAlgorithm.DFLASH,
            spec_info=self._draft_block_spec_info,
            capture_hidden_mode=CaptureHiddenMode.NULL,
        )
        plan(self.draft_model_runner, batch)
        with torch.inference_mode():
            out = self.draft_model_runner.forward(batch)
            if not out.can_run_graph:
                self._head(out.logits_output.hidden_states)

    def _verify(self, requests: Requests, verify: Verify, lane: Lane) -> Any:
        count = requests.count
        live = verify.first(count)
        spec = DFlashVerifyInput(
            draft_token=live.input_ids.view(-1),
            positions=live.positions.view(-1),
            draft_token_num=verify.width,
            capture_hidden_mode=CaptureHiddenMode.FULL,
        )
        batch = ForwardBatch(
            forward_mode=ForwardMode.TARGET_VERIFY,
            batch_size=count,
            input_ids=spec.draft_token,
            req_pool_indices=requests.pool_rows,
            seq_lens=requests.lengths,
            out_cache_loc=live.slots.view(-1),
            seq_lens_sum=requests.host_total,
            seq_lens_cpu=requests.host_lengths,
            positions=spec.positions,
            spec_algorithm=self.model_runner.spec_algorithm,
            spec_info=spec,
            capture_hidden_mode=CaptureHiddenMode.FULL,
        )
        plan(self.model_runner, batch)
        captured = lane.captures(batch)
        spec.custom_mask = lane.backend.stock_mask(count, requests.lengths, captured)
        with torch.inference_mode(), lane.on(self.model_runner):
            return self.model_runner.forward(batch)

    def _adjust(self, requests: Requests, logits: torch.Tensor, width: int) -> bool:
        """Apply penalties and biases to the logits in place and fill the sampling parameters; True for greedy."""
        sampling = requests.sampling
        if sampling is None:
            return True
        apply_dflash_verify_logits_adjustments(next_token_logits=logits, sampling_info=sampling, draft_token_num=width)
        if sampling.is_all_greedy:
            return True
        first = (self.target_worker.random_seed * 1_000_003 + self._steps) * self.sampling.seeds.shape[0] % 2**62
        seeds = torch.arange(first, first + requests.count, device=self.device)
        self.sampling.fill(sampling.temperatures, sampling.top_ps, sampling.min_ps, sampling.top_ks, seeds)
        return False
