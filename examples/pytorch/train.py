"""Fits a small network to a sine, and goes on where an earlier attempt has stopped."""

import os
from pathlib import Path

import torch

EPOCHS = int(os.environ.get("EPOCHS", "200"))
state = Path(os.environ["BASELOAD_STATE"]) / "state.pt"
device = "cuda" if torch.cuda.is_available() else "cpu"

torch.manual_seed(0)
x = torch.linspace(-3, 3, 512, device=device).unsqueeze(1)
y = torch.sin(x)
model = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
model = model.to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
begin = 0
if state.exists():
    saved = torch.load(state, map_location=device)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    begin = saved["epoch"]
    print(f"going on after epoch {begin}")

for epoch in range(begin, EPOCHS):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if (epoch + 1) % 50 == 0:
        print(f"epoch {epoch + 1} on {device}: loss {loss.item():.4f}")
        part = state.with_suffix(".part")
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**saved, "epoch": epoch + 1}, part)
        part.rename(state)

torch.save(model.state_dict(), Path(os.environ["BASELOAD_OUTPUT"]) / "model.pt")
