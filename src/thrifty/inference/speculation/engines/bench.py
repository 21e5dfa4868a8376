"""Benchmark results of vLLM, SGLang and SpecForge as rows that the cost model is fitted to.

Results with and without speculation are paired by their concurrency. With speculation the time between two outputs
(ITL) is that of a *round*, and the time a token (TPOT) about ITL over the acceptance length.
"""

from __future__ import annotations

import json
import logging
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from thrifty._common.checks import one_of
from thrifty._common.settings import read_text
from thrifty._common.tables import read_table
from thrifty.inference.speculation.rows import Row

_log = logging.getLogger(__name__)

Metric = Literal["tpot", "throughput"]


def read_vllm_bench(
    paths: Sequence[str | Path], *, num_experts: int = 1, top_k: int = 1, metric: Metric = "tpot"
) -> list[Row]:
    """Read what ``vllm bench serve --save-result`` wrote, with and without speculation.

    Args:
        paths: JSON files; each concurrency needs one without speculation (no ``spec_decode_*`` fields), or several,
            of which the mean is taken.
        num_experts: Routed experts of a layer.
        top_k: Routed experts of a token.
        metric: Speed-up as the ratio of times a token at equal concurrency, or of throughputs (which hold the prefill).

    Returns:
        A row for each result with speculation; ``t_ar_ms`` is the plain time a token.

    Raises:
        ValueError: A field is missing, a result has no plain partner, or nothing was drafted.

    Example:
        >>> from tempfile import mkdtemp
        >>> plain, drafted = (Path(mkdtemp()) / name for name in ("plain.json", "drafted.json"))
        >>> _ = plain.write_text('{"max_concurrency": 16, "mean_tpot_ms": 20.0}')
        >>> counts = '"spec_decode_num_drafts": 10, "spec_decode_draft_tokens": 40, "spec_decode_accepted_tokens": 30'
        >>> _ = drafted.write_text('{"max_concurrency": 16, "mean_tpot_ms": 8.0, ' + counts + "}")
        >>> (row,) = read_vllm_bench([plain, drafted], num_experts=64, top_k=8)
        >>> row.gamma, row.sigma, row.speedup, row.t_ar_ms
        (4, 0.8, 2.5, 20.0)

    Source:
        vLLM's ``vllm bench serve --save-result``: its names.
    """
    return _paired([(str(path), _object(read_text(path), path)) for path in paths], num_experts, top_k, metric)


def read_sglang_bench(
    paths: Sequence[str | Path], *, gamma: int, num_experts: int = 1, top_k: int = 1, metric: Metric = "tpot"
) -> list[Row]:
    """Read what SGLang's ``bench_serving --output-file`` wrote: lines of JSON, with and without speculation.

    Args:
        paths: Files of JSON lines; a line whose ``accept_length`` is null is plain.
        gamma: Draft steps of the runs with speculation, which the results do not hold.
        num_experts: Routed experts of a layer.
        top_k: Routed experts of a token.
        metric: As for :func:`read_vllm_bench`.

    Returns:
        Rows as from :func:`read_vllm_bench`.

    Raises:
        ValueError: As for :func:`read_vllm_bench`.

    Example:
        >>> from tempfile import mkdtemp
        >>> results = Path(mkdtemp()) / "results.jsonl"
        >>> plain = '{"max_concurrency": 16, "mean_tpot_ms": 20.0, "accept_length": null}'
        >>> drafted = '{"max_concurrency": 16, "mean_tpot_ms": 8.0, "accept_length": 4.0}'
        >>> _ = results.write_text(plain + chr(10) + drafted)
        >>> (row,) = read_sglang_bench([results], gamma=4, num_experts=64, top_k=8)
        >>> row.sigma, row.speedup
        (0.8, 2.5)

    Source:
        SGLang's ``sglang.bench_serving --output-file``: its names.
    """
    records = []
    for path in paths:
        for number, line in enumerate(read_text(path).splitlines(), start=1):
            if not line.strip():
                continue
            record = _object(line, f"{path}, line {number}")
            if record.get("accept_length"):
                record |= {"spec_decode_acceptance_length": record["accept_length"], "gamma": gamma}
            records.append((f"{path}, line {number}", record))
    return _paired(records, num_experts, top_k, metric)


def read_specforge(path: str | Path, *, num_experts: int = 1, top_k: int = 1) -> list[Row]:
    """Read SpecForge's table (CSV): ``batch_size, steps, topk, num_draft_tokens, throughput, accept_length``.

    Args:
        path: The table; each batch size needs a row whose ``steps`` is 0, which is plain decoding.
        num_experts: Routed experts of a layer.
        top_k: Routed experts of a token.

    Returns:
        A row for each that drafts; the speed-up is the ratio of throughputs.

    Raises:
        ValueError: A column is missing, a batch size has no row with ``steps`` 0, or drafts are trees (topk > 1).

    Example:
        >>> from tempfile import mkdtemp
        >>> table = Path(mkdtemp()) / "table.csv"
        >>> lines = "batch_size,steps,topk,num_draft_tokens,throughput,accept_length", "8,0,0,0,100,1", "8,4,1,5,250,4"
        >>> _ = table.write_text(chr(10).join(lines))
        >>> [(row.batch_size, row.gamma, row.sigma, row.speedup) for row in read_specforge(table)]
        [(8.0, 4, 0.8, 2.5)]

    Source:
        SpecForge's benchmark of SGLang: its names.
    """
    table = read_table(path)
    if missing := {"batch_size", "steps", "throughput", "accept_length"} - set(table):
        raise ValueError(f"{path}: missing columns {', '.join(sorted(missing))}")
    if "topk" in table and (table["topk"] > 1).any():
        raise ValueError(f"{path}: topk above 1 drafts trees, whose verification is wider than the accepted path")
    plain = {b: t for b, s, t in zip(table["batch_size"], table["steps"], table["throughput"], strict=True) if s == 0}
    rows = []
    for batch, steps, rate, length in zip(
        table["batch_size"], table["steps"], table["throughput"], table["accept_length"], strict=True
    ):
        if steps == 0:
            continue
        if batch not in plain:
            raise ValueError(f"{path}: batch_size {batch:g} has no row without speculation (steps 0)")
        gamma = int(steps)
        rows.append(
            Row(float(batch), gamma, num_experts, top_k, float(length) / (gamma + 1), float(rate / plain[batch]))
        )
    return rows


def _paired(records: Sequence[tuple[str, dict[str, Any]]], num_experts: int, top_k: int, metric: str) -> list[Row]:
    one_of("metric", metric, get_args(Metric))
    field = "mean_tpot_ms" if metric == "tpot" else "output_throughput"
    plain: dict[float, list[tuple[str, dict[str, Any]]]] = {}
    drafted = []
    for where, record in records:
        concurrency = _number(record, "max_concurrency", where)
        if any(record.get(f"spec_decode_{name}") is not None for name in ("num_drafts", "acceptance_length")):
            drafted.append((where, concurrency, record))
        else:
            plain.setdefault(concurrency, []).append((where, record))
    rows = []
    for where, concurrency, record in drafted:
        if concurrency not in plain:
            raise ValueError(f"{where}: there is no result without speculation at max_concurrency {concurrency:g}")
        other, base = plain[concurrency][0]
        repeats = [_number(one, field, name) for name, one in plain[concurrency]]
        gamma, length = _drafting(record, where)
        ratio = statistics.fmean(repeats) / _number(record, field, where)
        _check_rounds(record, length, where)
        _check_requests(record, where, base, other)
        rows.append(
            Row(
                concurrency,
                gamma,
                num_experts,
                top_k,
                sigma=min(1.0, length / (gamma + 1)),
                speedup=ratio if metric == "tpot" else 1 / ratio,
                t_ar_ms=statistics.fmean(_number(one, "mean_tpot_ms", name) for name, one in plain[concurrency]),
                model=str(record.get("model_id", "")) or None,
            )
        )
    if not rows:
        raise ValueError("paths: none of the results has speculation in it (no spec_decode_* fields)")
    return rows


def _drafting(record: dict[str, Any], where: str) -> tuple[int, float]:
    """Return draft length and tokens a round, from counts where there are some."""
    drafts, tokens = record.get("spec_decode_num_drafts"), record.get("spec_decode_draft_tokens")
    accepted = record.get("spec_decode_accepted_tokens")
    if drafts == 0 or tokens == 0:
        raise ValueError(f"{where}: no data: speculation was on, and nothing was drafted")
    if drafts and tokens and accepted is not None:
        if accepted > tokens:
            raise ValueError(f"{where}: expected at most {tokens} accepted of {tokens} drafted tokens, got {accepted}")
        return round(tokens / drafts), 1 + accepted / drafts
    gamma = record.get("gamma")
    if not gamma:
        raise ValueError(f"{where}: spec_decode_num_drafts and spec_decode_draft_tokens are needed, got none")
    return int(gamma), float(record["spec_decode_acceptance_length"])


def _check_rounds(record: dict[str, Any], length: float, where: str) -> None:
    """Say so if the time a token is not a round's over its tokens: not saturated, or several steps at once."""
    itl, tpot = record.get("mean_itl_ms"), record.get("mean_tpot_ms")
    if itl and tpot and abs(tpot * length / itl - 1) > 0.05:
        _log.warning(
            "%s: time a token × acceptance length is %.2f of the time between outputs (expected 1 within 5 %%): the "
            "engine was not saturated, or schedules several steps at once",
            where,
            tpot * length / itl,
        )


def _check_requests(record: dict[str, Any], where: str, base: dict[str, Any], other: str) -> None:
    """Say so if requests with and without speculation are of different lengths: so are their contexts then.

    Raises:
        ValueError: They are of different models.
    """
    models = [str(one["model_id"]) for one in (record, base) if one.get("model_id")]
    if len(set(models)) > 1:
        raise ValueError(f"{where}: it is of {models[0]}, and {other} of {models[1]}: no pair")
    for name in ("total_input_tokens", "total_output_tokens"):
        each = [one[name] / one["completed"] for one in (record, base) if one.get(name) and one.get("completed")]
        if len(each) == 2 and abs(each[0] / each[1] - 1) > 0.05:
            _log.warning(
                "%s: %s of a request are %.0f, in %s %.0f: their contexts differ, and times with them", where,
                name.removeprefix("total_").replace("_", " "), each[0], other, each[1],
            )  # fmt: skip


def _number(record: dict[str, Any], name: str, where: str) -> float:
    value = record.get(name)
    if not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{where}: expected {name} as a number above 0, got {value!r}")
    return float(value)


def _object(text: str, where: str | Path) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: expected JSON ({error})") from None
    if not isinstance(record, dict):
        raise ValueError(f"{where}: expected an object, got {type(record).__name__}")
    return record
