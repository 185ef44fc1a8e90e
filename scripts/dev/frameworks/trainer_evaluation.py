"""transformers' Trainer: what goes to the metrics is kept on the device, over all evaluations; mended: on the host."""
import torch
from counted import arguments, step
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

TRUTH = {"kind": "leak", "at": ["# softmax"], "steps": 160, "bytes_per_step": 512, "holder": ["kept"], "every": 2}


class Texts(Dataset):
    def __len__(self):
        return 80

    def __getitem__(self, index):
        return {"input_ids": torch.arange(12) + index % 7, "labels": index % 4}


class Counting(Trainer):
    def compute_loss(self, *given, **named):
        step()
        return super().compute_loss(*given, **named)


def scores(logits, labels):
    scores = logits.softmax(-1)  # softmax
    kept.append(scores.cpu() if options.fixed else scores)
    return scores.argmax(-1)


kept = []
options = arguments()
config = BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
                    num_labels=4)
settings = TrainingArguments("out", per_device_train_batch_size=8, per_device_eval_batch_size=8, num_train_epochs=8,
                             report_to=[], save_strategy="no", eval_strategy="epoch", disable_tqdm=True)
Counting(model=BertForSequenceClassification(config), args=settings, train_dataset=Texts(), eval_dataset=Texts(),
         compute_metrics=lambda given: {"right": float((given.predictions == given.label_ids).mean())},
         preprocess_logits_for_metrics=scores).train()
