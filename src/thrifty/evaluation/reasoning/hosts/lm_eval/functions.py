"""The functions that the YAML beside this names; lm-evaluation-harness loads this file by its path."""

from thrifty.evaluation.reasoning.hosts.lm_eval import doc_to_target, doc_to_text, load, mean_of_known, process_results

__all__ = ["doc_to_target", "doc_to_text", "load", "mean_of_known", "process_results"]
