"""transformers' Trainer: a subclass keeps the logits of every batch; mended: their mean."""
import torch
from counted import arguments, step
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

TRUTH = {"kind": "leak", "at": ["# outputs"], "steps": 100, "bytes_per_step": 512, "holder": ["logits"]}


class Texts(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        return {"input_ids": torch.arange(12) + index % 7, "labels": index % 4}


class Keeping(Trainer):
    logits = []

    def compute_loss(self, model, inputs, return_outputs=False, **rest):
        step()
        outputs = model(**inputs)  # outputs
        self.logits.append(outputs.logits.mean().item() if options.fixed else outputs.logits.detach())
        return (outputs.loss, outputs) if return_outputs else outputs.loss


options = arguments()
config = BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                    num_labels=4)
settings = TrainingArguments("out", per_device_train_batch_size=8, num_train_epochs=2, report_to=[], save_strategy="no",
                             disable_tqdm=True, dataloader_pin_memory=False)
Keeping(model=BertForSequenceClassification(config), args=settings, train_dataset=Texts()).train()
