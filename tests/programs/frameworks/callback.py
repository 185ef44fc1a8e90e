"""Keeps what a framework hands to a callback: no line of this program but that of `fit` is on any stack."""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).with_name("site-packages")))
import engine

kept = []
engine.fit(torch.nn.Linear(32, 8, bias=False).cuda(), int(sys.argv[1]), kept.append)
