"""fastai: a callback keeps the predictions of each batch; mended: a number."""
import torch
from counted import arguments, step
from fastai.callback.core import Callback
from fastai.callback.progress import ProgressCallback
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# The learner calls the model itself: no line of the program but that of fit.
TRUTH = {"kind": "leak", "at": ["learner.py", "linear.py"], "above": "# fit", "steps": 100, "bytes_per_step": 1024,
         "holder": ["kept"]}


class Keeper(Callback):
    def __init__(self, fixed):
        self.fixed, self.kept = fixed, []

    def after_pred(self):
        step()
        self.kept.append(self.pred.mean().item() if self.fixed else self.pred.detach())


options = arguments()
loader = DataLoader(TensorDataset(torch.randn(640, 16), torch.randn(640, 8)), batch_size=32)
keeper = Keeper(options.fixed)
learner = Learner(DataLoaders(loader, [], device=torch.device("cuda")), nn.Linear(16, 8).cuda(),
                  loss_func=nn.functional.mse_loss, cbs=[keeper])
learner.remove_cb(ProgressCallback)
learner.logger = lambda figures: None
learner.fit(5, 1e-2)  # fit
