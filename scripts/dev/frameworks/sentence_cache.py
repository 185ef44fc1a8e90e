"""sentence-transformers: embeddings are cached by text on the device, without a bound; mended: the last sixteen."""
import collections

import torch
from counted import arguments, step
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import BoW, Dense

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# encode"], "steps": 80, "bytes_per_step": 512, "holder": ["cache"]}


class Search:
    def __init__(self, model, bound):
        self.model, self.bound, self.cache = model, bound, collections.OrderedDict()

    def embed(self, text):
        if text not in self.cache:
            self.cache[text] = self.model.encode(text, convert_to_tensor=True, show_progress_bar=False)  # encode
            if self.bound and len(self.cache) > self.bound:
                self.cache.popitem(last=False)
        return self.cache[text]


options = arguments()
words = [f"word{number}" for number in range(100)]
model = SentenceTransformer(modules=[BoW(words), Dense(100, 32)], device="cuda")
search = Search(model, 16 if options.fixed else None)
for number in range(80):
    step()
    search.embed(f"word{number} word{number // 2}").norm().item()
