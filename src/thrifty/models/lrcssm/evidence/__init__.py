"""What `thrifty bench lrcssm` measures: speed, exactness, stability and accuracy, beside other choices.

Sets, seeds and thresholds were fixed before the first run. The paper's task is classification and regression of
sequences; the one row of forecasting is reported and claims nothing.
"""

from __future__ import annotations

from thrifty.bench.claims import Claim, Gate, Target
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence

EXACT = Gate("largest relative difference from the recurrence in order", margin=1e-4)
ACCURATE = Gate("accuracy, mean over sets", margin=0.0, better="higher", by="sd")

AUTO, NEWTON = "LrcSSM (auto)", "LrcSSM (Newton)"


def _speed(id_: str, what: str, rival: str, times: float, gate: Gate, ours: str, **more: object) -> Claim:
    return Claim(
        id=id_,
        text=f"{what}, forward and backward, T = 1024, D = 64.",
        about="time",
        unit="ratio",
        contenders=(ours, rival),
        target=Target(">=", times),
        gate=gate,
        **more,  # type: ignore[arg-type]
    )


CLAIMS = (
    Claim(
        id="exact",
        text="Solved in parallel, states and gradients of every cell are those of the recurrence in order (float64).",
        about="exactness",
        unit="relative",
        contenders=(NEWTON, "Python loop"),
        target=Target("<=", 1e-9),
    ),
    _speed("vs-gru", "A layer is at least 4 times as fast as nn.GRU at one sequence", "nn.GRU", 4.0, ACCURATE, AUTO),
    _speed("vs-gru-batch", "At least 1.7 times as fast as nn.GRU at four sequences", "nn.GRU", 1.7, ACCURATE, AUTO),
    _speed("vs-gru-newton", "Newton alone: at least 4 times nn.GRU at one sequence", "nn.GRU", 4.0, ACCURATE, NEWTON),
    _speed("vs-gru-newton-batch", "Newton alone: 1.7 times nn.GRU at four sequences", "nn.GRU", 1.7, ACCURATE, NEWTON),
    _speed("vs-loop", "Newton is at least 15 times the same cell in a loop at one sequence", "Python loop", 15.0, EXACT,
           NEWTON),
    _speed("vs-loop-batch", "Newton is at least 8 times the same cell in a loop at four sequences", "Python loop", 8.0,
           EXACT, NEWTON, budget="full"),
    Claim(
        id="vs-linear",
        text="A layer takes at most 3 times an LRU layer (B = 1, T = 1024, D = 64), forward and backward.",
        about="time",
        unit="ratio",
        contenders=(AUTO, "LRU"),
        target=Target("<=", 3.0),
        gate=ACCURATE,
        published="1000 steps at T = 17984 on an A100: LrcSSM 33 s, LRU 94 s, S5 31 s",
    ),
    Claim(
        id="linear-in-T",
        text="Time grows with T to a power of at most 1.1, from 1024 to 16384 steps.",
        about="scaling",
        unit="exponent",
        contenders=(AUTO,),
        target=Target("<=", 1.1),
    ),
    Claim(
        id="iterations-flat",
        text="Newton iterations over all lengths from 64 to 16384 of real signals: the most over the fewest.",
        about="scaling",
        unit="ratio",
        contenders=(NEWTON,),
        target=Target("<=", 1.5),
    ),
    Claim(
        id="memory",
        text="Forward and backward take at most 12 numbers a step and channel, beyond what was there (T = 4096).",
        about="memory",
        unit="ratio",
        contenders=(AUTO, "12·B·T·D·4 bytes"),
        target=Target("<=", 1.0),
        gate=EXACT,
    ),
    Claim(
        id="depth",
        text="Levels of combines in one scan, over 2⌈log₂ T⌉, for T from 64 to 16384.",
        about="scaling",
        unit="ratio",
        contenders=("tree scan",),
        target=Target("<=", 1.0),
    ),
    Claim(
        id="stability",
        text="Certified Jacobians, over ρ, under weights scaled by 1 to 120 and inputs up to a thousand.",
        about="exactness",
        unit="ratio",
        contenders=("LrcSSM, certified", "LrcSSM, raw"),
        target=Target("<=", 1.0),
    ),
    Claim(
        id="gradient-norms",
        text="Largest growth of a gradient over 200 steps, certified, under weights scaled by 1 to 120.",
        about="exactness",
        unit="ratio",
        contenders=("LrcSSM, certified", "LrcSSM, raw", "nn.GRU"),
        target=Target("<=", 1.0),
    ),
    Claim(
        id="accuracy",
        text="Accuracy over all sets: standard deviations over seeds by which it is above the best recurrent rival.",
        about="quality",
        unit="sd",
        contenders=("LrcSSM", "nn.GRU", "nn.LSTM", "LRU", "S5", "minGRU", "GruSSM"),
        target=Target(">=", -1.0),
        published="six UEA sets: LrcSSM 66.3 %, LRU 61.8, S5 63.1, LinOSS-IM 67.8",
        budget="full",
    ),
    Claim(
        id="accuracy-dense",
        text="Accuracy: standard deviations over seeds by which it is above the dense model (on two sets).",
        about="quality",
        unit="sd",
        contenders=("LrcSSM", "LRC, dense"),
        target=Target(">=", -1.0),
        published="fixed set-up: LrcSSM 65.4 %, dense 63.3",
        budget="full",
    ),
    Claim(
        id="accuracy-certified",
        text="Accuracy with ρ = 0.99, less that without.",
        about="quality",
        unit="points",
        contenders=("LrcSSM, certified", "LrcSSM"),
        budget="full",
    ),
    Claim(
        id="vs-transform",
        text="Accuracy, less that of MultiRocketHydra, which is no recurrent layer.",
        about="quality",
        unit="points",
        contenders=("LrcSSM", "MultiRocketHydra"),
        budget="full",
    ),
    Claim(
        id="forecasting",
        text="Squared error of a forecast eight steps ahead, over repeating the last value's (not in the paper).",
        about="quality",
        unit="ratio",
        contenders=("LrcSSM", "nn.GRU"),
        budget="full",
    ),
)  # fmt: skip


def prepare() -> None:
    """Compile the recurrences, which is done once an installation."""
    import torch

    from thrifty.models.lrcssm import DiagonalRNN, affine_scan

    for dtype in (torch.float32, torch.float64):
        for solver in ("sequential", "newton"):
            rnn = DiagonalRNN("lrc", 2, 3, solver=solver, dtype=dtype)
            rnn(torch.ones(1, 9, 2, dtype=dtype))[0].sum().backward()
        x = torch.ones(1, 3, 2, dtype=dtype)
        affine_scan(torch.complex(x, x), torch.complex(x, x))


def run(ctx: Context) -> Evidence:
    """Measure: what needs no training first; then quality, which the gates need; then times beside rivals."""
    from thrifty.models.lrcssm.evidence import accuracy, exactness, scaling, speed, stability

    evidence = ctx.evidence("one layer of 64 channels on random input; time series of the UCR and UEA archives")
    differences = exactness.show(ctx, evidence)
    stability.show(ctx, evidence)
    scaling.show(ctx, evidence, differences)
    gates = accuracy.show(ctx, evidence)
    speed.show(ctx, evidence, gates, differences)
    return evidence
