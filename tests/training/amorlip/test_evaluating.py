"""Evaluation of real models from the command line: every layout of data, every metric, and results side by side."""

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from amorlip_models import members, tar_of

from thrifty.training.amorlip import load_host
from thrifty.training.amorlip.evaluation import run
from thrifty.training.amorlip.evaluation.layouts import games
from thrifty.training.amorlip.evaluation.tasks import load_tasks
from thrifty.training.amorlip.evaluation.zeroshot import classification_metrics
from thrifty.training.amorlip.hosts import embed_images, embed_texts
from thrifty.training.amorlip.pairs import open_picture, read_pairs


def web(folder, pairs, groups=None):
    """A classification task of four colours as clip-benchmark's webdatasets have it."""
    folder.mkdir(parents=True)
    (folder / "classnames.txt").write_text("red\ngreen\nblue\nwhite\n")
    samples = []
    for place, (picture, _) in enumerate(pairs):
        samples += [(f"s{place}.png", picture.read_bytes()), (f"s{place}.cls", str(place % 4).encode())]
        if groups is not None:
            stored = io.BytesIO()
            np.save(stored, np.array([groups[place], 7]))
            samples.append((f"s{place}.npy", stored.getvalue()))
    tar_of(folder / "test" / "0.tar", samples)


@pytest.fixture
def pairs(ground):
    return read_pairs(ground / "pairs.jsonl")


def test_every_layout_of_a_task(ground, pairs, tmp_path, thrifty):
    model, root = ground / "hf", tmp_path / "tasks"
    shutil.copytree(ground / "classes", root / "cifar10")
    shutil.copytree(ground / "classes", root / "vtab_pets")
    (root / "vtab_pets" / "templates.txt").write_text("a {} square\nthe {c} one\n")
    (root / "retrieval_flickr30k").mkdir()
    rows = [{"image": str(path), "caption": caption} for path, caption in pairs]
    (root / "retrieval_flickr30k" / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    web(root / "mnist", pairs)
    out = tmp_path / "results.jsonl"
    ran = thrifty("amorlip", "eval", model, "--data", root, "--out", out, "--json")
    assert ran.code == 0, ran.err
    results = json.loads(ran.out)["results"]
    assert set(results) == {"cifar10", "vtab/pets", "retrieval/flickr30k", "mnist"}
    assert results["mnist"]["acc1"] == results["cifar10"]["acc1"]  # the same pictures in another layout
    lines = out.read_text().splitlines()
    out.write_text("\n".join(lines[:2]) + '\n{"key": "mni')  # interrupted while writing
    again = thrifty("amorlip", "eval", model, "--data", root, "--out", out)
    assert [json.loads(line)["key"] for line in out.read_text().splitlines()] == [json.loads(x)["key"] for x in lines]
    assert "all (4 of 38)" in again.out
    other = thrifty("amorlip", "eval", ground / "tiny-clip.json", "--data", root, "--out", out)
    assert other.code == 2
    assert "has results of another model" in other.err


def test_groups_that_do_worst(ground, pairs, tmp_path):
    """FMoW's regions (the last of them, others, left out), Dollar Street's incomes, GeoDE's regions, iWildCam's F1."""
    host = load_host(str(ground / "hf"))
    groups = [place % 6 for place in range(len(pairs))]
    for name in ("wilds_fmow", "fairness_dollar_street", "wds_fairness_geode"):
        web(tmp_path / name, pairs, groups)
    web(tmp_path / "wilds_iwildcam", pairs)
    done = run.evaluate(host, load_tasks(), tmp_path, tmp_path / "out.jsonl")
    images = torch.cat([embed_images(host.model, {k: x[None] for k, x in host.image(open_picture(path)).items()})
                        for path, _ in pairs])  # fmt: skip
    texts = embed_texts(
        host.model, host.tokenize([f"a photo of a {name}." for name in ("red", "green", "blue", "white")])
    )
    right = (images @ texts.T).argmax(1) == torch.arange(len(pairs)) % 4
    by_group = [right[group::6].double().mean().item() for group in range(6)]
    assert done["wilds/fmow"]["acc_worst_region"] == min(by_group[:5])
    assert done["fairness/geode"]["acc_wg"] == min(by_group)
    assert done["fairness/dollar_street"]["acc_top5_wg"] == 1.0  # of four classes
    assert set(done) == {"wilds/fmow", "fairness/geode", "fairness/dollar_street", "wilds/iwildcam"}


def test_the_worst_group_by_hand():
    features = torch.arange(8.0, 0.0, -1.0).expand(6, 8)  # every picture is nearest to the first class, then the second
    labels = torch.tensor([0, 0, 0, 6, 3, 3])
    found = classification_metrics(features, torch.eye(8), labels, torch.tensor([0, 0, 1, 1, 5, 5]))
    assert (found["acc_wg"], found["acc_worst_region"], found["acc_top5_wg"]) == (0.0, 0.5, 0.5)
    with pytest.raises(ValueError, match="groups: expected 6, got 2"):
        classification_metrics(features, torch.eye(8), labels, torch.tensor([0, 0]))
    with pytest.raises(ValueError, match="labels: expected numbers below the 4 classes, got 6"):
        classification_metrics(features[:, :4], torch.eye(4), labels)


def test_a_task_of_groups_without_groups_is_refused(ground, pairs, tmp_path, thrifty):
    shutil.copytree(ground / "classes", tmp_path / "more" / "wilds_fmow")
    ran = thrifty("amorlip", "eval", ground / "hf", "--data", tmp_path / "more", "--out", tmp_path / "more.jsonl")
    assert ran.code == 2
    assert "does not tell acc_worst_region" in ran.err
    assert not (tmp_path / "more.jsonl").exists()


def test_winogavils_games(ground, pairs, tmp_path):
    """Two games, by hand, from a list and from the Parquet files of the data set."""
    pq, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    host = load_host(str(ground / "hf"))
    paths = [path for path, _ in pairs]
    rows = [
        {"cue": "red", "candidates": [str(path) for path in paths[:5]], "associations": [str(paths[0]), str(paths[3])]},
        {"cue": "Ivory", "candidates": [str(path) for path in paths[:10]], "associations": [str(paths[1])]},
    ]
    listed, stored = tmp_path / "a" / "misc_winogavil", tmp_path / "b" / "misc_winogavil"
    listed.mkdir(parents=True)
    (listed / "games.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stored.mkdir(parents=True)
    kept = [
        row | {"candidate_images": [{"bytes": Path(path).read_bytes(), "path": None} for path in row["candidates"]]}
        for row in rows
    ]
    pq.write_table(pa.Table.from_pylist(kept), stored / "test.parquet")
    done = [
        run.evaluate(host, load_tasks(), root.parent, tmp_path / f"{root.parent.name}.jsonl")["misc/winogavil"]
        for root in (listed, stored)
    ]
    assert done[0] == done[1]
    images = torch.cat([embed_images(host.model, {k: x[None] for k, x in host.image(open_picture(path)).items()})
                        for path in paths[:10]])  # fmt: skip
    cues = embed_texts(host.model, host.tokenize(["A red", "An ivory"]))
    few = set((images[:5] @ cues[0]).argsort(descending=True)[:2].tolist())
    expected = len(few & {0, 3}) / len(few | {0, 3})
    many = float((images @ cues[1]).argmax() == 1)
    assert done[0] == {
        "jaccard_score_5-6": expected, "jaccard_score_10-12": many, "avg_jaccard_score": (expected + many) / 2
    }  # fmt: skip
    (listed / "games.jsonl").write_text(json.dumps({"cue": "red", "candidates": ["x"]}) + "\n")
    with pytest.raises(ValueError, match="game 1 in .* lacks associations"):
        list(games(listed))


def test_pairs_of_ones_own_and_their_results(ground, pairs, tmp_path, thrifty):
    """In a table, and in folders within a folder; written where that is asked for, and compared."""
    nested = tmp_path / "nested" / "inside"
    nested.mkdir(parents=True)
    for place, (picture, caption) in enumerate(pairs):
        shutil.copy(picture, nested / f"{place}.png")
        (nested / f"{place}.txt").write_text(caption)
    seen, outs = [], [tmp_path / "first, one.jsonl", tmp_path / "second.jsonl"]
    for data, out in ((ground / "pairs.jsonl", outs[0]), (nested.parent, outs[1])):
        ran = thrifty("amorlip", "eval", ground / "hf", "--data", data, "--out", out, "--json")
        assert ran.code == 0, ran.err
        seen.append(json.loads(ran.out))
    assert 0 <= seen[0]["mean_recall@1"] == seen[1]["mean_recall@1"] <= 1
    assert "mean_recall@1" in thrifty("amorlip", "eval", ground / "hf", "--data", ground / "pairs.jsonl").out
    compared = thrifty("amorlip", "compare", *outs, "--csv", tmp_path / "table.csv")
    assert compared.code == 0, compared.err
    with (tmp_path / "table.csv").open(newline="") as file:
        table = list(csv.reader(file))
    assert table[0] == ["task", *map(str, outs)]
    assert [row[0] for row in table[1:]] == ["pairs/nested", "pairs/pairs.jsonl"]
    assert thrifty("amorlip", "compare", *outs, "--csv", tmp_path / "table.csv").code == 2


def test_averages_are_over_what_all_have(tmp_path, thrifty):
    lines = [{"key": "cars", "metrics": {"acc1": 0.4}}, {"key": "mnist", "metrics": {"acc1": 0.8}}]
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_text(json.dumps(lines[0]) + "\n")
    two.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = json.loads(thrifty("amorlip", "compare", one, two, "--json").out)
    assert found["averages"][str(two)]["all"] == {"mean": 0.4, "tasks": 1, "of": 38}
    assert found["scores"][str(two)] == {"cars": 0.4, "mnist": 0.8}
    assert "mean: all (1 of 38)" in " ".join(thrifty("amorlip", "compare", one, two).out.split())


def test_members_that_lie_apart_are_refused_and_lacking_ones_counted(pairs, tmp_path, caplog):
    from thrifty.training.amorlip.pairs import tar_pairs

    whole = list(members(pairs[:3]))
    tar_of(tmp_path / "apart.tar", [*whole[::2], *whole[1::2]])
    with pytest.raises(ValueError, match=r"members of a sample beside each other.*got 00000\.txt apart"):
        list(tar_pairs(tmp_path / "apart.tar"))
    tar_of(tmp_path / "lacking.tar", [*whole[:3], ("00002.png", b"x"), ("00002.txt", b" \n")])
    assert len(list(tar_pairs(tmp_path / "lacking.tar"))) == 1
    assert "2 samples in" in caplog.text


def test_pictures_and_captions_that_will_not_do(ground, pairs, tmp_path, caplog):
    from thrifty.training.amorlip.pairs import Shards

    host = load_host(str(ground / "tiny-clip.json"))
    whole = list(members(pairs[:3]))
    cut = whole[0][1][: len(whole[0][1]) // 2]
    tar_of(tmp_path / "cut.tar", [("a.png", cut), ("a.txt", b"a square"), *whole])
    assert len(list(Shards([tmp_path / "cut.tar"], host.image, host.tokenize))) == 3
    assert "the picture of 'a square' is left out" in caplog.text
    (tmp_path / "cut.png").write_bytes(cut)
    with pytest.raises(ValueError, match=r"data: .*cut\.png cannot be read as a picture"):
        open_picture(tmp_path / "cut.png")
    for name, text in (
        ("pairs.csv", "image,caption\ncut.png,\n"),
        ("pairs.jsonl", '{"image": "cut.png", "caption": null}'),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=r"expected a caption for every picture .* an empty one for .*cut\.png"):
            read_pairs(tmp_path / name)
