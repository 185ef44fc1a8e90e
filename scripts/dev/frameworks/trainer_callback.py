"""transformers' Trainer: a callback keeps a copy of a gradient before every optimizer step; mended: its norm."""
import torch
from counted import arguments, step
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

TRUTH = {"kind": "leak", "at": ["# copy"], "steps": 80, "bytes_per_step": 8192, "holder": ["gradients"]}


class Texts(Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, index):
        ids = torch.arange(16) + index % 9
        return {"input_ids": ids, "labels": ids}


class Watch(TrainerCallback):
    def __init__(self, fixed):
        self.fixed, self.gradients = fixed, {}

    def on_pre_optimizer_step(self, args, state, control, model=None, **rest):
        step()
        gradient = model.transformer.wte.weight.grad
        self.gradients[state.global_step] = gradient.norm().item() if self.fixed else gradient.clone()  # copy


options = arguments()
config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2)
settings = TrainingArguments("out", per_device_train_batch_size=8, num_train_epochs=2, report_to=[], save_strategy="no",
                             disable_tqdm=True, logging_steps=10)
Trainer(model=GPT2LMHeadModel(config), args=settings, train_dataset=Texts(), callbacks=[Watch(options.fixed)]).train()
