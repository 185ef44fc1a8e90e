"""Lightning and torchmetrics: a metric that gathers predictions is never reset; mended: after every epoch."""
import lightning
import torch
import torchmetrics
from counted import arguments, step
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {"kind": "leak", "at": ["# scores", "# update"], "steps": 150, "bytes_per_step": 2048, "holder": ["cat"]}


class Module(lightning.LightningModule):
    def __init__(self, fixed):
        super().__init__()
        self.fixed, self.cat = fixed, torchmetrics.CatMetric()
        self.net = nn.Linear(16, 8)

    def training_step(self, batch, index):
        step()
        scores = self.net(batch[0])  # scores
        self.cat.update(scores.detach().flatten())  # update
        return scores.square().mean()

    def on_train_epoch_end(self):
        self.cat.compute().mean().item()
        if self.fixed:
            self.cat.reset()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


options = arguments()
loader = DataLoader(TensorDataset(torch.randn(960, 16)), batch_size=64)
trainer = lightning.Trainer(accelerator="cuda", devices=1, max_epochs=10, logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Module(options.fixed), loader)
