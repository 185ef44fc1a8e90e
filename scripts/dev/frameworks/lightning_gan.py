"""Lightning, two optimizers by hand: every generated batch is kept for a film; mended: the last one."""
import lightning
import torch
from counted import arguments, step
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {"kind": "leak", "at": ["# images"], "steps": 100, "bytes_per_step": 8192, "holder": ["film"]}


class Gan(lightning.LightningModule):
    def __init__(self, fixed):
        super().__init__()
        self.automatic_optimization, self.fixed, self.film = False, fixed, []
        self.maker, self.judge = nn.Linear(16, 64), nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 1))

    def training_step(self, batch, index):
        step()
        for_maker, for_judge = self.optimizers()
        images = self.maker(torch.randn(32, 16, device=self.device))  # images
        for optimizer, loss in ((for_maker, -self.judge(images).mean()),
                                (for_judge, self.judge(images.detach()).mean() - self.judge(batch[0]).mean())):
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        if self.fixed:
            self.film.clear()
        self.film.append(images.detach())

    def configure_optimizers(self):
        return torch.optim.Adam(self.maker.parameters()), torch.optim.Adam(self.judge.parameters())


options = arguments()
loader = DataLoader(TensorDataset(torch.randn(640, 64)), batch_size=32)
trainer = lightning.Trainer(accelerator="cuda", devices=1, max_epochs=5, logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Gan(options.fixed), loader)
