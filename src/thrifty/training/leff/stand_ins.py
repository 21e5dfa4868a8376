"""The server's store of stand-ins: one a segment, shared by all clients that need it, warm from round to round.

At most L prefixes and L suffixes exist for one block length, so that distillation costs what segments cost, not what
clients cost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy

from torch import Tensor, nn

from thrifty.training.leff.config import LeffConfig
from thrifty.training.leff.context import Segment
from thrifty.training.leff.distill import distill, eager_copy, teacher_pass
from thrifty.training.leff.importance import Batch
from thrifty.training.leff.layers import LayerView


class StandIns:
    """Stand-ins by segment.

    Args:
        config: How they are made.

    Attributes:
        made: Segment to its layers.
        refreshed: The round in which each was last distilled.
        errors: E of each at the first and the last step of its last distillation.

    Example:
        >>> StandIns(LeffConfig(compression="drop")).made
        {}

    Source:
        Shen et al., NeurIPS 2025, section 3 (compression); the store is ours.
    """

    def __init__(self, config: LeffConfig) -> None:
        self.config = config
        self.made: dict[Segment, nn.ModuleList] = {}
        self.refreshed: dict[Segment, int] = {}
        self.errors: dict[Segment, tuple[float, float]] = {}

    def layers(self, view: LayerView, segment: Segment) -> list[nn.Module]:
        """Return what stands in for a segment: distilled layers, or layers of the model as they are."""
        if not self._distilled(segment):
            return [view.layers[source] for source in segment.sources]
        return list(self.made[segment])

    def refresh(
        self, view: LayerView, segments: Collection[Segment], proxy: Sequence[Batch] | None, round_: int
    ) -> int:
        """Distil what is missing or old, from one pass of the teacher.

        Args:
            view: The teacher.
            segments: That this round needs.
            proxy: Batches without regard to labels.
            round_: This one.

        Returns:
            Updates that were made, over all segments.

        Raises:
            ValueError: There is something to distil and no proxy set.
        """
        due = sorted(
            segment
            for segment in set(segments)
            if self._distilled(segment)
            and (segment not in self.made or round_ - self.refreshed[segment] >= self.config.distill_every)
        )
        if not due:
            return 0
        if not proxy:
            raise ValueError(
                "proxy: expected batches to distil on with compression='distill', got none; "
                "pass some, or choose compression='drop' or 'none'"
            )
        batches = teacher_pass(view, self._turn(proxy, round_), due, self.config)
        teacher, steps = eager_copy(view), 0
        for segment in due:
            students = nn.ModuleList(deepcopy(teacher.layers[source]) for source in segment.sources)
            if segment in self.made:  # warm: go on where the last round's ended
                students.load_state_dict(self.made[segment].state_dict())
            losses = distill(students, segment, batches, self.config)
            self.made[segment], self.refreshed[segment] = students, round_
            self.errors[segment] = (losses[0], losses[-1])
            steps += len(losses)
        return steps

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors, by segment and name."""
        return {
            f"{s.start}-{s.length}-{s.depth}@{self.refreshed[s]}.{name}": tensor
            for s, layers in self.made.items()
            for name, tensor in layers.state_dict().items()
        }

    def load_state_dict(self, view: LayerView, state: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`state_dict` gave."""
        by_segment: dict[str, dict[str, Tensor]] = {}
        for key, tensor in state.items():
            head, _, name = key.partition(".")
            by_segment.setdefault(head, {})[name] = tensor
        teacher = eager_copy(view)
        for head, tensors in by_segment.items():
            at, _, round_ = head.partition("@")
            segment = Segment(*map(int, at.split("-")))
            students = nn.ModuleList(deepcopy(teacher.layers[source]) for source in segment.sources)
            students.load_state_dict(tensors)
            self.made[segment], self.refreshed[segment] = students.requires_grad_(False).eval(), int(round_)

    def _turn(self, proxy: Sequence[Batch], round_: int) -> list[Batch]:
        """Return the batches that a refresh gets to: as many as it has steps, and others in the next round."""
        count = min(self.config.distill_steps, len(proxy))
        return [proxy[(round_ * count + i) % len(proxy)] for i in range(count)]

    def _distilled(self, segment: Segment) -> bool:
        """Tell whether there is something to distil: a stand-in as deep as its segment is the segment."""
        return self.config.compression == "distill" and segment.depth < segment.length
