"""What `thrifty bench ellice` measures: recourse over an ellipsoid of near-optimal models, beside what one could pick.

Tables: scikit-learn's breast cancer, and pima, australian, german, saheart of KEEL, and ``heart``;
all were fixed before anything was run.
"""

from __future__ import annotations

from thrifty.bench.claims import Claim, Gate, Target
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence

CERTIFIED = Gate("share of answers that the ellipsoid does not certify", margin=0.0)

CLAIMS = (
    Claim(
        id="shorter-at-same-certificate",
        text="At ε = 0.01 answers are at least 15 % nearer than the authors' package's, as a mean over six tables.",
        about="quality",
        unit="ratio",
        contenders=("ElliCE exact, data bounds", "ellice 0.1.4"),
        target=Target("<=", 0.85),
        gate=CERTIFIED,
    ),
    Claim(
        id="never-longer-than-margin",
        text="No answer is farther than walking straight along the weights until certified.",
        about="quality",
        unit="ratio",
        contenders=("ElliCE exact", "margin"),
        target=Target("<=", 1.0000001),
        gate=CERTIFIED,
    ),
    Claim(
        id="true-rashomon-validity",
        text="Every answer certified on the ellipsoid is accepted by the whole true Rashomon set of the same ε.",
        about="quality",
        unit="share",
        contenders=("ElliCE exact, refit",),
        target=Target(">=", 1.0),
    ),
    Claim(
        id="true-set-when-asked",
        text="With certify='rashomon' every answer is accepted by the whole true Rashomon set.",
        about="quality",
        unit="share",
        contenders=("ElliCE exact, refit, true set",),
        target=Target(">=", 1.0),
    ),
    Claim(
        id="stable-over-retrains",
        text="At ε = 0.005 and 0.01, bootstrap retrainings accept at least as many answers as of any rival's at the "
        "same mean L2 on its frontier (to one sd).",
        about="quality",
        unit="share",
        contenders=("ElliCE", "margin", "T:Rex", "ROAR", "PROPLACE", "Δ-robust neighbours", "ellice 0.1.4"),
        target=Target(">=", 0.0),
        published="MLP, diabetes: robust under retraining 0.98 at L2 2.15; T:Rex 0.94 at 2.47, ROAR 0.48",
    ),
    Claim(
        id="ahead-on-the-whole-frontier",
        text="No point of any rival's frontier is above ours, at small distances neither (to one sd).",
        about="quality",
        unit="share",
        contenders=("ElliCE", "margin", "T:Rex", "ROAR", "PROPLACE", "Δ-robust neighbours", "ellice 0.1.4"),
        target=Target(">=", 0.0),
    ),
    Claim(
        id="accepted-by-all-retrains",
        text="The same lead at ε = 0.005 and 0.01, in the share of persons whose answer every retrained model accepts.",
        about="quality",
        unit="share",
        contenders=("ElliCE", "margin", "T:Rex", "ROAR", "PROPLACE", "Δ-robust neighbours", "ellice 0.1.4"),
    ),
    Claim(
        id="network-over-retrains",
        text="MLP16: at ε = 0.005 and 0.01, networks from other seeds accept at least as many answers as of any "
        "rival's at the same mean L2 on its frontier (to one sd).",
        about="quality",
        unit="share",
        contenders=("ElliCE", "margin", "T:Rex", "ROAR", "Δ-robust neighbours", "ellice 0.1.4"),
        target=Target(">=", 0.0),
        published="MLP, diabetes: robust under retraining 0.98 at L2 2.15; T:Rex 0.94 at 2.47, ROAR 0.48",
        budget="full",
    ),
    Claim(
        id="speed-vs-library",
        text="The exact solver answers at least 50 times as fast as the authors' package (no bounds, 30 columns).",
        about="time",
        unit="ratio",
        contenders=("ElliCE exact", "ellice 0.1.4"),
        target=Target(">=", 50.0),
        gate=CERTIFIED,
    ),
    Claim(
        id="data-speed-vs-library",
        text="Answers that are rows of the table come at least 20 times as fast as from the authors' package.",
        about="time",
        unit="ratio",
        contenders=("ElliCE data", "ellice 0.1.4 data"),
        target=Target(">=", 20.0),
        gate=CERTIFIED,
    ),
    Claim(
        id="speed-vs-trex",
        text="The exact solver answers at least five times as fast as T:Rex (1000 neighbours, persons in one tensor).",
        about="time",
        unit="ratio",
        contenders=("ElliCE exact", "T:Rex (k=1000)"),
        target=Target(">=", 5.0),
        gate=CERTIFIED,
        published="data-supported, MLP: 3.9 to 6.7 times",
    ),
    Claim(
        id="speed-vs-dice",
        text="How many times as long DiCE's random search takes a person.",
        about="time",
        unit="ratio",
        contenders=("ElliCE exact", "DiCE random"),
        budget="full",
    ),
    Claim(
        id="speed-vs-roar",
        text="How many times as long ROAR takes a person (all in one tensor).",
        about="time",
        unit="ratio",
        contenders=("ElliCE exact", "ROAR"),
    ),
)


def run(ctx: Context) -> Evidence:
    """Measure, cheapest first."""
    # The rivals need torch; the method itself does not, so it is only asked for here.
    from thrifty.solvers.ellice.evidence import lengths, networks, retrains, speed

    evidence = ctx.evidence("breast cancer (scikit-learn) and tables of the KEEL repository, standardised, 75/25")
    lengths.show(ctx, evidence)
    speed.show(ctx, evidence)
    retrains.show(ctx, evidence)
    if ctx.full:
        networks.show(ctx, evidence)
    return evidence
