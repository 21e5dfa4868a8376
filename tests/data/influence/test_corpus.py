"""A scorer is saved, refused for another model, and applied by Ray Data as by itself."""

import pytest
import torch
from influence_ground import llama, pool

from thrifty.data.influence import CorpusScorer, InfluenceDistillation, JVPEmbedding, StaleStoreError, score_corpus

ROWS, TARGET = pool(30), pool(3, seed=5)


@pytest.fixture(scope="module")
def scorer():
    model = llama()
    picker = InfluenceDistillation(model, num_landmarks=12, embedding=JVPEmbedding(num_blocks=2))
    scored = picker.score(ROWS, TARGET)
    return CorpusScorer.from_result(model, picker.config, scored), scored


def test_it_gives_the_scores_of_the_run_and_survives_a_file(scorer, tmp_path):
    made, scored = scorer
    assert torch.allclose(made(ROWS), scored.scores, atol=1e-4)
    again = CorpusScorer.load(made.save(tmp_path / "s"), llama())
    assert torch.allclose(again(ROWS), made(ROWS), atol=1e-6)
    with pytest.raises(StaleStoreError, match="another model"):
        CorpusScorer.load(tmp_path / "s", llama(seed=1))
    with pytest.raises(FileExistsError):
        made.save(tmp_path / "s")
    with pytest.raises(ValueError, match="every score of that run was exact"):
        CorpusScorer(llama(), made.config, None)


@pytest.mark.slow
@pytest.mark.dist
def test_ray_data_scores_a_corpus(scorer, tmp_path):
    ray = pytest.importorskip("ray")
    made, _ = scorer
    made.save(tmp_path / "s")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    try:
        corpus = ray.data.from_items([{"id": i, "input_ids": row["input_ids"]} for i, row in enumerate(ROWS)])
        state, config = llama().state_dict(), llama().config

        def load_model():
            from transformers import LlamaForCausalLM

            model = LlamaForCausalLM(config).eval()
            model.load_state_dict(state)
            return model

        found = score_corpus(corpus, load_model, tmp_path / "s", batch_size=8).take_all()
    finally:
        ray.shutdown()
    rows = torch.tensor([row["influence"] for row in sorted(found, key=lambda row: row["id"])])
    assert torch.allclose(rows, made(ROWS), atol=1e-4)
