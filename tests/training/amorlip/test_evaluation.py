import json

import pytest
import torch

from thrifty.training.amorlip.evaluation.retrieval import recalls
from thrifty.training.amorlip.evaluation.tasks import averages, load_tasks, main_metrics, read_results
from thrifty.training.amorlip.evaluation.zeroshot import associate, classification_metrics, jaccard


def test_recalls_with_several_captions_an_image():
    images = torch.eye(3)
    texts = torch.stack([images[0], images[1], images[1], 0.9 * images[0] + 0.1 * images[2]])
    owner = torch.tensor([0, 1, 1, 2])  # the last caption is nearest to the wrong image
    found = recalls(images, texts, owner, at=(1, 3), chunk_size=2)
    assert found["image_retrieval_recall@1"] == 0.75
    assert found["image_retrieval_recall@3"] == 1.0
    assert found["text_retrieval_recall@1"] == 1.0  # one of its captions is enough
    assert found["mean_recall@1"] == 0.875


def test_recalls_agree_with_ranks_counted_one_by_one():
    rng = torch.Generator().manual_seed(0)
    images, texts = torch.randn(20, 5, generator=rng), torch.randn(20, 5, generator=rng)
    found = recalls(images, texts, at=(1, 5, 10), chunk_size=7)
    A = images @ texts.T
    for k in (1, 5, 10):
        of_text = sum(bool((A[:, j] > A[j, j]).sum() < k) for j in range(20)) / 20
        of_image = sum(bool((A[i] > A[i, i]).sum() < k) for i in range(20)) / 20
        assert found[f"image_retrieval_recall@{k}"] == of_text
        assert found[f"text_retrieval_recall@{k}"] == of_image


def test_captions_that_fit_no_image_are_refused():
    with pytest.raises(ValueError, match="image_of_text: expected it for 4 captions of 3 images"):
        recalls(torch.eye(3), torch.eye(4)[:, :3])
    with pytest.raises(ValueError, match="image_of_text: expected 3 numbers below 3"):
        recalls(torch.eye(3), torch.eye(3), torch.tensor([0, 1, 3]))


def test_metrics_of_classification():
    features = torch.eye(4)[[0, 0, 1, 2]]
    found = classification_metrics(features, torch.eye(4), torch.tensor([0, 0, 1, 1]))
    by_hand = (1 + 2 / 3) / 2  # F1 of the two classes that are there
    assert found == {"acc1": 0.75, "acc5": 1.0, "mean_per_class_recall": 0.75, "F1-macro_all": pytest.approx(by_hand)}
    with pytest.raises(ValueError, match="labels: expected 4, at least one, got 3"):
        classification_metrics(features, torch.eye(4), torch.tensor([0, 0, 1]))
    assert jaccard([1, 2, 3], [2, 3, 4]) == 0.5
    assert associate(torch.eye(3), torch.tensor([0.1, 0.9, 0.5]), 2) == [1, 2]
    with pytest.raises(ValueError, match="chosen, right"):
        jaccard([], [])


def test_the_38_tasks_and_their_main_metrics():
    tasks = load_tasks()
    assert len(tasks) == 38
    counts = {}
    for task in tasks:
        counts[task.group] = counts.get(task.group, 0) + 1
    assert counts == {
        "ImageNet": 1, "ImageNet shifts": 6, "VTAB": 13, "retrieval": 2, "WILDS": 3, "fairness": 2, "other": 11
    }  # fmt: skip
    special = {task.key: task.metric for task in tasks if task.metric != "acc1"}
    assert special["misc/winogavil"] == "jaccard_score_10-12"
    assert special["wilds/fmow"] == "acc_worst_region"
    assert special["retrieval/flickr30k"] == "mean_recall@1"
    assert len(special) == 11


def test_averages_of_groups_and_of_all():
    tasks = load_tasks()
    results = {task.key: {task.metric: 0.2 if task.group == "ImageNet shifts" else 0.5} for task in tasks}
    found = averages(results, tasks)
    assert found["ImageNet shifts"] == {"mean": pytest.approx(0.2), "tasks": 6, "of": 6}
    assert found["all"] == {"mean": pytest.approx((6 * 0.2 + 32 * 0.5) / 38), "tasks": 38, "of": 38}
    del results["imagenet1k"]
    assert averages(results, tasks)["ImageNet"] == {"mean": None, "tasks": 0, "of": 1}
    with pytest.raises(ValueError, match="wilds/fmow: expected the metric acc_worst_region, got acc1"):
        main_metrics({"wilds/fmow": {"acc1": 0.5}}, tasks)


def test_results_of_others_are_read_and_a_cut_off_line_is_left_out(tmp_path):
    path = tmp_path / "results.jsonl"
    lines = [
        {"key": "cars", "dataset": "Stanford Cars", "metrics": {"acc1": 0.5, "main_metric": 0.5}},
        {"dataset": "wds/mnist", "metrics": {"acc1": 0.7, "note": "text"}},
        {"key": "retrieval/flickr30k", "metrics": {"image_retrieval_recall@1": 0.2, "text_retrieval_recall@1": 0.4}},
        {"key": "cars", "metrics": {"acc1": 0.6}},
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + '\n{"key": "stl10", "met')
    found = read_results(path)
    assert main_metrics(found, load_tasks()) == {
        "cars": 0.6, "mnist": 0.7, "retrieval/flickr30k": pytest.approx(0.3)
    }  # fmt: skip
    assert read_results(tmp_path / "none.jsonl") == {}
    path.write_text('nonsense\n{"key": "cars", "metrics": {}}\n')
    with pytest.raises(ValueError, match="line 1: expected JSON"):
        read_results(path)
    path.write_text('{"key": "cars"}\n{"key": "cars", "metrics": {}}\n')
    with pytest.raises(ValueError, match="line 1: expected a key"):
        read_results(path)


def test_a_list_of_ones_own(tmp_path):
    path = tmp_path / "tasks.json"
    task = {"key": "mine", "name": "Mine", "group": "own"}
    path.write_text(json.dumps({"schema": "thrifty.amorlip.tasks", "version": 1, "tasks": [task]}))
    assert load_tasks(path)[0].metric == "acc1"
    path.write_text(json.dumps({"schema": "thrifty.amorlip.tasks", "version": 1, "tasks": [task, task]}))
    with pytest.raises(ValueError, match="expected every key once, got mine again"):
        load_tasks(path)
    path.write_text(json.dumps({"schema": "thrifty.amorlip.tasks", "version": 1, "tasks": [{"name": "Mine"}]}))
    with pytest.raises(ValueError, match="expected tasks of key, name, group and metric"):
        load_tasks(path)
