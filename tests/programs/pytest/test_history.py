"""Tests for `pytest --leaktrace`: FIXED=1 keeps numbers where tensors were kept."""

import os

import pytest
import torch
from torch import nn

FIXED = bool(os.environ.get("FIXED"))
HISTORY = []
LAST = {}
MODEL = {}
SET_UP = []


def loss_of(weight):
    return (weight * weight).sum()


def test_history_of_losses():
    weight = torch.ones(1000, device="cuda", requires_grad=True)
    loss = loss_of(weight)
    HISTORY.append(loss.item() if FIXED else loss.detach())


class TestEverySecond:
    calls = 0

    @pytest.mark.leaktrace(repeat=5)
    def test_now_and_then(self):
        TestEverySecond.calls += 1
        result = torch.ones(5000, device="cuda")
        if TestEverySecond.calls % 2 == 0 and not FIXED:
            HISTORY.append(result)


def test_last_result():
    LAST["result"] = None if FIXED else torch.ones(300, device="cuda")


@pytest.fixture(scope="module")
def model():
    SET_UP.append("model")
    yield nn.Linear(64, 32).to("cuda")
    SET_UP.remove("model")


@pytest.fixture
def batch(model):
    return torch.ones(8, model.in_features, device="cuda")


def test_gradients_of_a_shared_model(model, batch):
    model.zero_grad(set_to_none=True)
    model(batch).sum().backward()
    assert SET_UP == ["model"]


def test_made_at_first_use():
    if "model" not in MODEL:
        MODEL["model"] = nn.Linear(128, 128).to("cuda")
    with torch.no_grad():
        MODEL["model"](torch.ones(4, 128, device="cuda"))


def test_garbage_in_cycles():
    class Node:
        pass

    node = Node()
    node.me = node
    node.data = torch.ones(7000, device="cuda")


def test_steps_of_its_own():
    import leaktrace

    assert leaktrace.active()
    for _ in range(3):
        torch.ones(100, device="cuda")
        leaktrace.step()


def test_that_fails():
    HISTORY.append(torch.ones(10, device="cuda"))
    assert len(HISTORY) == 0


@pytest.mark.xfail(reason="known")
def test_known_to_fail():
    HISTORY.append(torch.ones(10, device="cuda"))
    raise ValueError


@pytest.mark.skip(reason="not here")
def test_skipped():
    pass


@pytest.mark.leaktrace(repeat=0)
def test_not_judged():
    HISTORY.append(torch.ones(10, device="cuda"))


def test_without_a_gpu(tmp_path):
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("mine")
