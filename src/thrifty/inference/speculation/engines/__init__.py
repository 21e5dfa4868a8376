"""What serving engines write: vLLM's and SGLang's benchmark results, metrics and logs, as rows and acceptances."""

from thrifty.inference.speculation.engines.bench import read_sglang_bench, read_specforge, read_vllm_bench
from thrifty.inference.speculation.engines.logs import acceptance_of_log
from thrifty.inference.speculation.engines.metrics import Counters, read_metrics, scrape_acceptance

__all__ = [
    "Counters",
    "acceptance_of_log",
    "read_metrics",
    "read_sglang_bench",
    "read_specforge",
    "read_vllm_bench",
    "scrape_acceptance",
]
