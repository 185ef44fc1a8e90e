"""Lightning: predictions of every validation are gathered, and the list is never cleared; mended: it is."""
import lightning
import torch
from counted import arguments, step
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {"kind": "leak", "at": ["# scores"], "steps": 240, "bytes_per_step": 4096, "holder": ["predictions"],
         "every": 2}


class Classifier(lightning.LightningModule):
    def __init__(self, fixed):
        super().__init__()
        self.fixed, self.predictions = fixed, []
        self.net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))

    def training_step(self, batch, index):
        step()
        return self.net(batch[0]).square().mean()

    def validation_step(self, batch, index):
        step()
        self.predictions.append(self.net(batch[0]))  # scores

    def on_validation_epoch_end(self):
        torch.cat(self.predictions).norm(dim=1).max().item()
        if self.fixed:
            self.predictions.clear()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


options = arguments()
loader = DataLoader(TensorDataset(torch.randn(320, 32)), batch_size=32)
trainer = lightning.Trainer(accelerator="cuda", devices=1, max_epochs=12, logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
trainer.fit(Classifier(options.fixed), loader, loader)
