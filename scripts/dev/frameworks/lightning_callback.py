"""Lightning: a callback keeps what each training step returned; mended: the number."""
import lightning
import torch
from counted import arguments, step
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# Lightning hands callbacks a copy of the loss that it makes itself.
TRUTH = {"kind": "leak", "at": ["automatic.py"], "above": "# fit", "steps": 120, "bytes_per_step": 512,
         "holder": ["outputs"]}


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))

    def training_step(self, batch, index):
        return self.net(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


class Keeper(lightning.Callback):
    def __init__(self, fixed):
        self.fixed, self.outputs = fixed, []

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        step()
        self.outputs.append(outputs["loss"].item() if self.fixed else outputs)


options = arguments()
loader = DataLoader(TensorDataset(torch.randn(960, 32)), batch_size=32)
trainer = lightning.Trainer(accelerator="cuda", devices=1, max_epochs=4, logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False, callbacks=[Keeper(options.fixed)])
trainer.fit(Module(), loader)  # fit
