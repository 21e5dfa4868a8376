"""Fine-tuning a reduced model with its unreduced self as the teacher: for a loop of one's own and for ``Trainer``.

The recipe is that of arXiv 2511.21477, section 4: cross-entropy plus distillation from the original model, AdamW at a
rate of 1e-4 and weight decay 2e-5, no warm-up, an exponential moving average of the weights. Its weight of distillation
is not given; 0.5 at temperature 1 is DynamicViT's.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from thrifty._common.checks import number, positive
from thrifty._common.extras import require
from thrifty._common.weights import load_pretrained, load_saved
from thrifty.inference.token_reduction.patch import reduction_of
from thrifty.inference.token_reduction.saving import ADDED, load_added

#: Of a checkpoint of ``Trainer``: the teacher, where it follows the student.
TEACHER = "distillation_teacher.pt"


def distillation_loss(
    student: Float[Tensor, "batch classes"],
    teacher: Float[Tensor, "batch classes"],
    labels: Int[Tensor, " batch"] | None = None,
    *,
    weight: float = 0.5,
    temperature: float = 1.0,
) -> Tensor:
    """Return cross-entropy plus ``weight`` times T² KL(teacher ‖ student); without labels, the divergence alone.

    Args:
        student: Logits of the reduced model.
        teacher: Logits of the unreduced one, which gets no gradient.
        labels: Classes.
        weight: Of the divergence.
        temperature: T, above 0.

    Raises:
        ValueError: The weight is negative, the temperature is not above 0, or logits and labels do not fit together.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0]])
        >>> float(distillation_loss(logits, logits))
        0.0

    Source:
        Rao et al., "DynamicViT", NeurIPS 2021; Hinton et al., 2015.
    """
    check_distillation(weight, temperature)
    for name, logits in (("student", student), ("teacher", teacher)):
        if not isinstance(logits, Tensor) or not logits.is_floating_point() or logits.ndim != 2 or 0 in logits.shape:
            came = f"{logits.dtype} {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
            raise ValueError(f"{name}: expected logits, batch x classes, got {came}")
    if student.shape != teacher.shape:
        raise ValueError(f"teacher: expected logits of shape {tuple(student.shape)}, got {tuple(teacher.shape)}")
    if labels is not None and (not isinstance(labels, Tensor) or len(labels) != len(student)):
        came = f"shape {tuple(labels.shape)}" if isinstance(labels, Tensor) else type(labels).__name__
        raise ValueError(f"labels: expected a tensor of {len(student)} classes, got {came}")
    soft = (teacher.detach().float() / temperature).log_softmax(dim=-1)
    ours = (student.float() / temperature).log_softmax(dim=-1)
    divergence: Tensor = temperature**2 * functional.kl_div(ours, soft, reduction="batchmean", log_target=True)
    if labels is None:
        return divergence
    hard: Tensor = functional.cross_entropy(student.float(), labels)
    return hard + weight * divergence


def check_distillation(weight: Any, temperature: Any) -> None:
    """Refuse a weight or a temperature that is none.

    Raises:
        ValueError: The weight is negative, the temperature is not above 0, or one is no finite number.
    """
    number("weight", weight, "a weight of at least 0", least=0)
    positive("temperature", temperature, "a number above 0")


def logits_of(output: Any) -> Float[Tensor, "batch classes"]:
    """Return the logits in a host's output: the output itself, its ``logits``, or the mean of a distilled pair.

    Raises:
        TypeError: There are none.
    """
    if isinstance(output, Tensor):
        return output
    if isinstance(output, tuple) and len(output) == 2 and all(isinstance(part, Tensor) for part in output):
        mean: Tensor = (output[0] + output[1]) / 2  # timm's distilled models in training
        return mean
    found = output.get("logits") if isinstance(output, dict) else getattr(output, "logits", None)
    if not isinstance(found, Tensor):
        raise TypeError(f"output: expected logits, or something that holds them, got {type(output).__name__}")
    return found


class Distiller:
    """A reduced model's teacher, and the loss against it, for a loop of one's own.

    Args:
        student: The model, with a reduction in force.
        teacher: ``"original"``: a copy without the reduction, frozen; ``"ema"``: that copy follows the student by an
            exponential moving average (call :meth:`update` after each step), and is unreduced all the same.
        weight: Of the distillation.
        temperature: Of its logits.
        decay: Of the average.

    Raises:
        ValueError: No reduction is in force, the teacher is unknown, or a number is out of range.

    Example:
        >>> import timm
        >>> vit = timm.create_model("vit_tiny_patch16_224", depth=3, embed_dim=48).eval()
        >>> from thrifty.inference.token_reduction import FreqReduceConfig, reduce_tokens
        >>> reduction = reduce_tokens(vit, FreqReduceConfig((2,), 0.5, dc_pos_embed="learned"))
        >>> distiller = Distiller(vit)
        >>> loss = distiller.loss(torch.randn(2, 3, 224, 224), torch.tensor([3, 7]))
        >>> loss.backward()
        >>> all(parameter.grad is not None for parameter in reduction.parameters())
        True

    Source:
        arXiv 2511.21477, section 4.
    """

    def __init__(
        self,
        student: nn.Module,
        *,
        teacher: Literal["original", "ema"] = "original",
        weight: float = 0.5,
        temperature: float = 1.0,
        decay: float = 0.9998,
    ) -> None:
        if teacher not in ("original", "ema"):
            raise ValueError(f"teacher: expected 'original' or 'ema', got {teacher!r}")
        check_distillation(weight, temperature)
        number("decay", decay, "a decay in [0, 1)", least=0, below=1)
        if reduction_of(student) is None:
            raise ValueError("student: no token reduction is in force; call reduce_tokens before distilling")
        self.student, self.kind = student, teacher
        self.weight, self.temperature, self.decay = weight, temperature, decay
        self.teacher = unreduced_copy(student)

    def loss(self, x: Any, labels: Tensor | None = None, student_logits: Tensor | None = None) -> Tensor:
        """Return the loss of a batch.

        Args:
            x: What the model takes: a tensor, or a mapping of keyword arguments.
            labels: Classes; without them only the teacher is followed.
            student_logits: The student's logits, if it ran already.
        """
        with torch.no_grad():
            aim = logits_of(_call(self.teacher, x))
        ours = logits_of(_call(self.student, x)) if student_logits is None else student_logits
        return distillation_loss(ours, aim, labels, weight=self.weight, temperature=self.temperature)

    @torch.no_grad()
    def update(self) -> None:
        """Move an ``"ema"`` teacher towards the student; nothing for the original one."""
        if self.kind == "ema":
            average(self.teacher, self.student, self.decay)


def unreduced_copy(model: nn.Module) -> nn.Module:
    """Return a frozen copy of a model without its reduction, in evaluation mode."""
    twin = copy.deepcopy(model)
    reduction = reduction_of(twin)
    if reduction is not None:
        reduction.remove()
    return twin.eval().requires_grad_(False)


@torch.no_grad()
def average(mean: nn.Module, model: nn.Module, decay: float) -> None:
    """Move ``mean`` to ``decay`` times itself plus the rest of ``model``, by name; what only one has stays."""
    ours = dict(model.named_parameters())
    for name, held in mean.named_parameters():
        if name in ours:
            held.lerp_(ours[name].to(held.dtype), 1 - decay)
    buffers = dict(model.named_buffers())
    for name, buffer in mean.named_buffers():
        if name in buffers:
            buffer.copy_(buffers[name])


def distilling_trainer() -> Any:
    """Return a subclass of transformers' ``Trainer`` whose loss adds distillation from the unreduced model.

    Its constructor takes, besides ``Trainer``'s own arguments, ``distiller`` (a :class:`Distiller` of the model).

    Raises:
        ImportError: transformers is not installed.

    Example:
        >>> from transformers import Trainer
        >>> issubclass(distilling_trainer(), Trainer)
        True

        With a reduction in force: ``distilling_trainer()(model, arguments, distiller=Distiller(model), ...)``.

    Source:
        arXiv 2511.21477, self-distillation from the unreduced model; Rao et al., "DynamicViT" (2021), for the KL
        divergence.
    """
    base: Any = require("transformers", extra="vision").Trainer

    class DistillingTrainer(base):  # type: ignore[misc]
        """``Trainer`` with self-distillation of a reduced model."""

        def __init__(self, *args: Any, distiller: Distiller, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.distiller = distiller

        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
            """Return cross-entropy plus distillation."""
            labels = inputs.get("labels")
            images = {name: value for name, value in inputs.items() if name != "labels"}
            output = model(**images)
            self.distiller.teacher.to(logits_of(output).device)
            loss = self.distiller.loss(images, labels, logits_of(output))
            return (loss, output) if return_outputs else loss

        def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
            """Load what the reduction added too, which lies beside the plain model's files.

            ``Trainer`` itself leaves out every weight whose name is another on disk, as those of ViT are.
            """
            student: Any = self.distiller.student
            reduction = reduction_of(student)
            if reduction is None or not Path(resume_from_checkpoint, ADDED).exists():
                super()._load_from_checkpoint(resume_from_checkpoint, model)
                return
            student.load_state_dict(load_pretrained(type(student), resume_from_checkpoint).state_dict(), strict=False)
            load_added(reduction, Path(resume_from_checkpoint))

        def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
            """Save a teacher that follows too: it is part of what a run goes on from."""
            super()._save_optimizer_and_scheduler(output_dir)
            if self.args.should_save and self.distiller.kind == "ema":
                torch.save(self.distiller.teacher.state_dict(), Path(output_dir, TEACHER))

        def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
            super()._load_optimizer_and_scheduler(checkpoint)
            if checkpoint is not None and self.distiller.kind == "ema":
                held = load_saved(Path(checkpoint, TEACHER), name="resume_from_checkpoint")
                self.distiller.teacher.load_state_dict(held)

        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            """Train, and let the teacher follow."""
            loss = super().training_step(*args, **kwargs)
            self.distiller.update()
            return loss

    return DistillingTrainer


def _call(model: nn.Module, x: Any) -> Any:
    return model(**x) if isinstance(x, dict) else model(x)
