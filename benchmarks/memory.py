"""Peak memory of explaining a BERT-base-sized random model against a plain forward + backward pass.

    python benchmarks/memory.py

Each way runs in a process of its own; what is compared is the growth of the resident memory above the loaded model. The
allocator is told to give freed memory back at once, so that what is measured is in use and not merely kept for later.
"""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import threading
import time
import warnings

import torch

WAYS = ("forward + backward", "attribute", "explain")


def resident() -> int:
    """Bytes in memory now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


class Peak:
    """Watches the resident memory from another thread."""

    def __enter__(self) -> Peak:
        self.start = self.highest = resident()
        self.running = True
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while self.running:
            self.highest = max(self.highest, resident())
            time.sleep(0.002)

    def __exit__(self, *error: object) -> None:
        self.running = False
        self.thread.join()


def measure(way: str) -> None:
    import transformers

    from cafexai import CAFE

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(transformers.BertConfig(num_labels=2)).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    ids = torch.randint(1, 1000, (4, 128))
    embeddings = model.get_input_embeddings()

    def plain() -> None:
        leaf = embeddings(ids).detach().requires_grad_()
        model(inputs_embeds=leaf).logits[:, 1].sum().backward()

    cafe = CAFE(model)
    run = {
        "forward + backward": plain,
        "attribute": lambda: CAFE(lambda i: model(i).logits).attribute(ids, target=1),
        "explain": lambda: cafe.explain(ids, target=1, output="logits"),
    }[way]
    model(ids[:1, :4])
    gc.collect()
    started = time.perf_counter()
    with Peak() as peak:
        run()
    seconds = time.perf_counter() - started
    print(peak.highest - peak.start, seconds)


def main() -> None:
    if len(sys.argv) > 1:
        return measure(sys.argv[1])
    print(f"BERT-base-sized random model, 4 x 128 tokens, torch {torch.__version__}, {torch.get_num_threads()} threads")
    base = None
    for way in WAYS:
        settings = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
        command = [sys.executable, __file__, way]
        out = subprocess.run(command, capture_output=True, text=True, check=True, env=settings).stdout
        grown, seconds = (float(word) for word in out.split())
        base = base or grown
        print(f"  {way:20} {grown / 2**20:8.0f} MiB   {grown / base:5.2f} x   {seconds:6.1f} s")
    return None


if __name__ == "__main__":
    main()
