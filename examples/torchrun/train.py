"""Fits one line with all workers: each has its own part of the data, all have the same model."""

import os
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank, size = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else None

torch.manual_seed(rank)  # So that each worker has data of its own.
x = torch.randn(256, 1, device=device)
y = 3 * x + 1
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()

slope = model.module.weight.item()
print(f"worker {rank} of {size}: slope {slope:.3f}", flush=True)
(Path(os.environ["BASELOAD_OUTPUT"]) / f"slope-{rank}").write_text(f"{slope:.3f}\n")
dist.destroy_process_group()
