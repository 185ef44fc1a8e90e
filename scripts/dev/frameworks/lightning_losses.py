"""Lightning: the module keeps each loss for a plot, with its graph; mended: its number."""
import lightning
import torch
from counted import arguments, step
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {"kind": "leak", "at": ["# loss"], "steps": 120, "bytes_per_step": 512, "holder": ["losses"]}


class Regression(lightning.LightningModule):
    def __init__(self, fixed):
        super().__init__()
        self.fixed, self.losses = fixed, []
        self.net = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1))

    def training_step(self, batch, index):
        step()
        inputs, targets = batch
        outputs = self.net(inputs)
        loss = nn.functional.mse_loss(outputs, targets)  # loss
        self.losses.append(loss.item() if self.fixed else loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


options = arguments()
data = TensorDataset(torch.randn(1920, 32), torch.randn(1920, 1))
trainer = lightning.Trainer(accelerator="cuda", devices=1, max_epochs=4, logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Regression(options.fixed), DataLoader(data, batch_size=64))
