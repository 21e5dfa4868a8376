"""``thrifty reasoning``: problems, proofs, runs and scores from a shell."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from thrifty._common.files import refuse_existing, write_whole
from thrifty._common.options import Force, Json, Seed

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")

Problems = Annotated[Path, typer.Option("--problems", help="Problems, as JSONL that `generate` wrote.")]
Completions = Annotated[Path, typer.Option("--completions", help="Completions, as JSONL: problem_id and completion.")]
Aligner = Annotated[str, typer.Option(help="**grammar**, or **official**: the published rule.")]
Trace = Annotated[str, typer.Option(help="What counts: **visible** (outside <think>), **thinking** or **both**.")]


@app.callback()
def _reasoning() -> None:
    """How much of a language model's proof was necessary: its length against the shortest proof.

    `generate` makes word problems with distractors of controlled kinds, `run` asks a model, `score` aligns what it
    wrote with the theorems of each problem, `report` shows the scores, and proofs in colours. `prove` finds the
    shortest proof of a logic program or a word problem.
    """


@app.command()
def generate(
    out: Annotated[Path, typer.Option(help="A folder for problems.jsonl and the data card.")],
    n: Annotated[int, typer.Option("--n", help="Base problems.", min=1)] = 100,
    seed: Seed = 0,
    cell: Annotated[
        list[str] | None,
        typer.Option(help="A condition, CONNECTION/AMOUNT/OVERLAP or `base`; repeatable. None: all 28."),
    ] = None,
    query: Annotated[str, typer.Option(help="**question** or **prove**.")] = "question",
    force: Force = False,
) -> None:
    """Make a data set: problems of every condition, each through the consistency gate, with a data card.

    Example: `thrifty reasoning generate --n 20 --cell base --cell disconnected/complex/agent_overlap --out data`
    """
    from thrifty.evaluation.reasoning.problems.datacard import data_card
    from thrifty.evaluation.reasoning.problems.files import write_problems
    from thrifty.evaluation.reasoning.problems.generator import bundles
    from thrifty.evaluation.reasoning.problems.problem import CELLS, Problem

    by_name = {str(known): known for known in CELLS}
    if unknown := [name for name in cell or () if name not in by_name]:
        raise ValueError(f"--cell: expected one of {', '.join(by_name)}, got {unknown[0]!r}")
    for name in ("problems.jsonl", "README.md"):
        refuse_existing(out / name, force)
    cells = [by_name[name] for name in cell] if cell else list(CELLS)
    made: list[Problem] = []
    rejected = 0
    for number, bundle in enumerate(bundles(n, seed, cells=cells, query=query), start=1):
        made += bundle.problems.values()
        rejected += bundle.rejected
        if number % 50 == 0:
            typer.echo(f"{number} of {n}", err=True)
    path = write_problems(made, out / "problems.jsonl", force=force)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    write_whole(out / "README.md", data_card(made, seed=seed, rejected=rejected, digest=digest), force=force)
    typer.echo(f"{len(made)} problems written to {out / 'problems.jsonl'}; bundles drawn again: {rejected}", err=True)


@app.command()
def prove(
    file: Annotated[Path, typer.Argument(help="A logic program, or a word problem with --words.")],
    words: Annotated[bool, typer.Option("--words", help="The file is a word problem in English.")] = False,
    objective: Annotated[
        str, typer.Option(help="**dag**: distinct steps; **tree**: a lemma counts at each use.")
    ] = "dag",
    to: Annotated[
        str | None, typer.Option(help="Print the program instead: **text**, **prolog** or **datalog**.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find the shortest proof of a goal.

    Example: `thrifty reasoning prove program.txt`
    """
    from thrifty.evaluation.reasoning import Program, execute, read_problem, shortest_proof

    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: expected text (UTF-8), got something else: {error}") from None
    program = read_problem(text).program if words else Program.from_text(text)
    if to is not None:
        writers = {"text": program.to_text, "prolog": program.to_prolog, "datalog": program.to_datalog}
        if to not in writers:
            raise ValueError(f"--to: expected one of {', '.join(writers)}, got {to!r}")
        typer.echo(writers[to](), nl=False)
        return
    if program.goal is None:
        raise ValueError(f"{file}: expected a goal, as in 'goal cont(Bo, fig) = ?', got none")
    graph = execute(program)
    proof = shortest_proof(graph, objective=objective)
    steps = [
        {
            "premises": [str(graph.nodes[node]) for node in graph.edges[number].tail],
            "conclusion": str(graph.nodes[graph.edges[number].head]),
            "rule": graph.edges[number].rule,
        }
        for number in proof.edges
    ]
    found = {"length": proof.length, "optimal": proof.optimal, "theorems": len(graph.theorems), "steps": steps}
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    for number, step in enumerate(steps, start=1):
        typer.echo(f"{number}. {' and '.join(step['premises'])} give {step['conclusion']}  ({step['rule']})")
    proven = "shortest proof" if proof.optimal else "shortest proof found in time"
    typer.echo(
        f"{proven}: {proof.length} step{'' if proof.length == 1 else 's'}; theorems that follow: {len(graph.theorems)}"
    )


@app.command()
def run(
    problems: Problems,
    out: Annotated[Path, typer.Option(help="A JSONL file of completions; an interrupted run goes on.")],
    model: Annotated[str, typer.Option(help="The model's name at the endpoint, or its folder.")],
    runner: Annotated[str, typer.Option(help="**endpoint**, **transformers** or **vllm**.")] = "endpoint",
    base_url: Annotated[str | None, typer.Option(help="Of the endpoint; else the variable OPENAI_BASE_URL.")] = None,
    key_variable: Annotated[str, typer.Option(help="The variable that holds the key.")] = "OPENAI_API_KEY",
    prefill: Annotated[bool, typer.Option(help="The endpoint goes on from the beginning of an answer.")] = True,
    body: Annotated[
        str | None, typer.Option(help="Of an endpoint: JSON fields in place of what is sent; null leaves one out.")
    ] = None,
    gguf_file: Annotated[str | None, typer.Option(help="Of a model folder: the GGUF file in it.")] = None,
    k: Annotated[int, typer.Option("--k", help="Worked examples before each problem.", min=0)] = 5,
    max_tokens: Annotated[int, typer.Option(help="Of a completion.", min=1)] = 4000,
    concurrency: Annotated[int, typer.Option(help="Requests at a time.", min=1)] = 16,
    price_in: Annotated[float, typer.Option(help="Dollars a million tokens in.")] = 0.0,
    price_out: Annotated[float, typer.Option(help="Dollars a million tokens out.")] = 0.0,
    batch: Annotated[int, typer.Option(help="Prompts at a time, of **transformers**.", min=1)] = 8,
    limit: Annotated[int | None, typer.Option(help="The first so many problems only.", min=1)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would take, and ask nothing.")] = False,
) -> None:
    """Ask a model every problem. What it would take is said first.

    Example: `thrifty reasoning run --problems p.jsonl --model m --base-url http://localhost:8000/v1 --out c.jsonl`
    """
    from thrifty.evaluation.reasoning.problems.files import read_problems
    from thrifty.evaluation.reasoning.runners.endpoint import EndpointModel
    from thrifty.evaluation.reasoning.runners.models import TransformersModel, VLLMModel
    from thrifty.evaluation.reasoning.runners.run import estimate
    from thrifty.evaluation.reasoning.runners.run import run as ask

    several = read_problems(problems)[:limit]
    expected = estimate(several, k=k)
    priced = f", about ${expected.cost(price_in, price_out):.2f}" if price_in or price_out else ""
    typer.echo(f"{expected}{priced}", err=True)
    if dry_run:
        return
    asked: Any
    if runner == "endpoint":
        asked = EndpointModel(
            model, base_url, key_variable=key_variable, concurrency=concurrency, prefill=prefill, body=_fields(body)
        )
    elif runner == "transformers":
        options: dict[str, Any] = {"gguf_file": gguf_file} if gguf_file else {}
        asked = TransformersModel.from_pretrained(model, batch=batch, **options)
    elif runner == "vllm":
        asked = VLLMModel(model)
    else:
        raise ValueError(f"--runner: expected one of endpoint, transformers, vllm, got {runner!r}")
    ask(
        several,
        asked,
        out,
        k=k,
        max_tokens=max_tokens,
        progress=lambda done, all_: typer.echo(f"{done} of {all_}", err=True),
    )


def _fields(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"--body: expected a JSON object, got {text!r}")
    return found


@app.command()
def score(
    problems: Problems,
    completions: Completions,
    out: Annotated[Path, typer.Option(help="Where to write the scores, as JSONL.")],
    aligner: Aligner = "grammar",
    trace: Trace = "both",
    until_goal: Annotated[bool, typer.Option("--until-goal", help="Nothing counts after the goal.")] = False,
    steps: Annotated[Path | None, typer.Option(help="Where to write each proof's labelled steps, as JSONL.")] = None,
    force: Force = False,
) -> None:
    """Score completions, and print the table of conditions.

    Example: `thrifty reasoning score --problems data/problems.jsonl --completions c.jsonl --out scores.jsonl`
    """
    from thrifty.evaluation.reasoning.problems.files import read_problems
    from thrifty.evaluation.reasoning.report import score_all
    from thrifty.evaluation.reasoning.runners.run import by_problem, read_completions
    from thrifty.evaluation.reasoning.traces.align import align

    for path in (out, steps):
        refuse_existing(path, force)
    found = by_problem(read_completions(completions))
    several = [problem for problem in read_problems(problems) if problem.id in found]
    if not several:
        raise ValueError(f"--completions: expected answers to problems of {problems}, got none")
    report = score_all(several, found, aligner=aligner, trace=trace, until_goal=until_goal)
    report.save(out, force=force)
    if steps is not None:
        aligned = (align(p, found[p.id]["completion"] or "", aligner=aligner, trace=trace) for p in several)
        rows = [
            {"problem_id": p.id, "steps": [asdict(s) for s in a.steps]} for p, a in zip(several, aligned, strict=True)
        ]
        write_whole(steps, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), force=force)
    typer.echo(report.to_markdown(), nl=False)


@app.command()
def report(
    scores: Annotated[Path, typer.Option("--scores", help="Scores, as `score` wrote them.")],
    out: Annotated[Path | None, typer.Option(help="Where to write a page (HTML); none: print the table.")] = None,
    problems: Annotated[Path | None, typer.Option(help="For proofs in colours: the problems ...")] = None,
    completions: Annotated[Path | None, typer.Option(help="... and the completions.")] = None,
    proofs: Annotated[int, typer.Option(help="How many proofs to show.", min=0)] = 20,
    force: Force = False,
) -> None:
    """Show scores: a table of conditions, and with problems and completions, proofs in colours.

    Example: `thrifty reasoning report --scores scores.jsonl --out report.html`
    """
    from thrifty.evaluation.reasoning.pages import proof_html, report_html
    from thrifty.evaluation.reasoning.problems.files import read_problems
    from thrifty.evaluation.reasoning.report import Report
    from thrifty.evaluation.reasoning.runners.run import by_problem, read_completions

    if (problems is None) != (completions is None):
        raise ValueError("--problems, --completions: expected both or none, got one")
    found = Report.load(scores)
    if out is None:
        typer.echo(found.to_markdown(), nl=False)
        return
    shown = []
    if problems is not None and completions is not None:
        texts = by_problem(read_completions(completions))
        several = [problem for problem in read_problems(problems) if problem.id in texts][:proofs]
        shown = [proof_html(problem, texts[problem.id]["completion"]) for problem in several]
    write_whole(out, report_html(found, shown), force=force)
    typer.echo(f"written to {out}", err=True)
