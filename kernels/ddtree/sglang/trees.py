"""The buffers that a verify step lives in, at addresses that captured graphs may hold."""

from dataclasses import dataclass

import torch

from ddtree.accept import Acceptance
from ddtree.mask import positions
from ddtree.tree import Tree, build_tree


@dataclass(frozen=True)
class Candidates:
    """What the drafter proposes for up to R requests, whatever the width of the tree.

    log_probs float32, token_ids int32 [R,D,K]; roots, prefix int64 [R]: the last emitted token and the cached length
    of each request.
    """

    log_probs: torch.Tensor
    token_ids: torch.Tensor
    roots: torch.Tensor
    prefix: torch.Tensor

    @classmethod
    def empty(cls, rows: int, depth: int, candidates: int, device: torch.device | str) -> "Candidates":
        """Buffers that are safe to replay a graph over before any request came."""
        return cls(
            log_probs=torch.full((rows, depth, candidates), float("-inf"), device=device),
            token_ids=torch.zeros(rows, depth, candidates, dtype=torch.int32, device=device),
            roots=torch.zeros(rows, dtype=torch.int64, device=device),
            prefix=torch.ones(rows, dtype=torch.int64, device=device),
        )

    @property
    def rows(self) -> int:
        return self.roots.shape[0]

    @property
    def depth(self) -> int:
        return self.log_probs.shape[1]

    def first(self, rows: int) -> "Candidates":
        """The same buffers, seen for `rows` requests."""
        return Candidates(*(value[:rows] for value in vars(self).values()))


@dataclass(frozen=True)
class Verify:
    """What the target verifies: trees of W nodes for up to R requests.

    input_ids, positions, slots int64 [R,W]; a slot is where the node's KV goes. Rows without a request point at slot
    0, SGLang's padding.
    """

    tree: Tree
    input_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor

    @classmethod
    def empty(cls, rows: int, width: int, depth: int, device: torch.device | str) -> "Verify":
        """Buffers that are safe to replay a graph over before any request came."""
        tree = Tree.empty(rows, width, depth, device)
        for field in (tree.tokens, tree.depths, tree.ancestors, tree.sizes):
            field.zero_()
        tree.parents.fill_(-1)
        integers = torch.zeros(3, rows, width, dtype=torch.int64, device=device)
        return cls(tree, *integers)

    @property
    def width(self) -> int:
        return self.slots.shape[1]

    def first(self, rows: int) -> "Verify":
        """The same buffers, seen for `rows` requests."""
        return Verify(rows_of(self.tree, rows), self.input_ids[:rows], self.positions[:rows], self.slots[:rows])

    def grow(self, drafts: Candidates, budget: int, chain: bool) -> None:
        """Build the trees, and from them what the target takes in. Capturable."""
        tree = build_tree(
            drafts.log_probs, drafts.token_ids, drafts.roots, budget, max_nodes=self.width, chain=chain, out=self.tree
        )
        self.input_ids.copy_(tree.tokens)
        positions(tree, drafts.prefix, out=self.positions)


def rows_of(tree: Tree, rows: int) -> Tree:
    """The first trees of a batch, in place."""
    tensors = {name: value[:rows] for name, value in vars(tree).items() if name != "draft_depth"}
    return Tree(**tensors, draft_depth=tree.draft_depth)


@dataclass(frozen=True)
class Outcome:
    """What a step gives, packed in one int64 tensor so that one copy takes it out of a graph's reach.

    packed [R * (D + 1) + 3 * R]: emitted tokens of every request, accepted lengths (= tokens emitted), new prefix
    lengths, bonus tokens.
    """

    packed: torch.Tensor
    rows: int

    @classmethod
    def pack(cls, acceptance: Acceptance, prefix: torch.Tensor) -> "Outcome":
        lengths = acceptance.lengths.long()
        parts = (acceptance.emitted.long().flatten(), lengths, prefix + lengths, acceptance.bonus_tokens.long())
        return cls(torch.cat(parts), prefix.shape[0])

    def detached(self) -> "Outcome":
        """A copy that the next replay does not write over."""
        return Outcome(self.packed.clone(), self.rows)

    @property
    def block(self) -> int:
        return self.packed.shape[0] // self.rows - 3

    def emitted(self, rows: int) -> torch.Tensor:
        """[rows * (D + 1)]: tokens of the first requests, -1 after each one's last."""
        return self.packed[: rows * self.block]

    def lengths(self, rows: int) -> torch.Tensor:
        return self._part(0, rows)

    def prefix(self, rows: int) -> torch.Tensor:
        return self._part(1, rows)

    def bonus(self, rows: int) -> torch.Tensor:
        return self._part(2, rows)

    def _part(self, index: int, rows: int) -> torch.Tensor:
        start = self.rows * (self.block + index)
        return self.packed[start : start + rows]
