# %% [markdown]
# # Penstock with PyTorch, from nothing to a checkpoint
#
# Every cell runs on a laptop without a GPU in a few seconds.  Open this file as a notebook in
# VS Code or Jupyter (with jupytext), or run it: `python examples/tutorial.py`.

# %%
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset, WeightedRandomSampler
from torchvision import datasets
from torchvision.transforms import v2

import pictures

place = tempfile.TemporaryDirectory()
root = Path(place.name) / "shapes"
pictures.make(root, 240, 40)  # a folder a class: train/circle/0001.jpg, ...

# %% [markdown]
# ## 1. Change one line
#
# A dataset and transforms as everyone writes them.  The import below is the only change.

# %%
from penstock.torch import DataLoader, explain  # noqa: E402  # was: from torch.utils.data import DataLoader

train_transform = v2.Compose(
    [
        v2.RandomResizedCrop(64, scale=(0.3, 1.0)),
        v2.RandomHorizontalFlip(),
        v2.ColorJitter(0.3, 0.3, 0.3),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
    ]
)
train = datasets.ImageFolder(str(root / "train"), train_transform)
loader = DataLoader(train, batch_size=32, shuffle=True)
images, labels = next(iter(loader))
assert images.shape == (32, 3, 64, 64)
assert labels.dtype == torch.int64

# %% [markdown]
# ## 2. See what runs where
#
# Nothing is taken on trust: `explain` says which operation became native code and which did not.

# %%
explain(train)

# %% [markdown]
# A lambda cannot be compiled.  It runs in worker processes, after the part before it that can.

# %%
odd = v2.Compose(
    [
        v2.Resize((64, 64)),
        v2.Lambda(lambda image: image),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
    ]
)
explain(datasets.ImageFolder(str(root / "train"), odd))

# %% [markdown]
# ## 3. Train

# %%
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 5, stride=4),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(32, len(train.classes)),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)


def step(images: torch.Tensor, labels: torch.Tensor) -> float:
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


waited, start = 0.0, time.perf_counter()
for _ in range(3):
    batches = iter(loader)
    while True:
        asked = time.perf_counter()
        batch = next(batches, None)
        waited += time.perf_counter() - asked
        if batch is None:
            break
        loss = step(*batch)
print(f"loss {loss:.3f}; waited {waited / (time.perf_counter() - start):.0%} of the time for data")

# %% [markdown]
# ## 4. Stop anywhere, go on exactly there
#
# The state is the position of what was *consumed*: a few numbers to keep in the checkpoint beside the
# model.  It goes on with any number of workers.

# %%
loader = DataLoader(train, batch_size=32, shuffle=True, seed=7)
batches = iter(loader)
for _ in range(3):
    next(batches)
checkpoint = loader.state_dict()
rest = [labels for _, labels in batches]

again = DataLoader(train, batch_size=32, shuffle=True, seed=7, num_workers=1)
again.load_state_dict(checkpoint)
resumed = [labels for _, labels in again]
assert len(resumed) == len(rest)
assert all(torch.equal(a, b) for a, b in zip(resumed, rest, strict=True))

# %% [markdown]
# ## 5. torch's own order
#
# With `order="torch"` the permutation is the one that torch's DataLoader would have drawn from the same
# generator: runs can be compared to the bit.

# %%
theirs = torch.utils.data.DataLoader(
    train, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(1)
)
ours = DataLoader(
    train, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(1), order="torch"
)
for (_, a), (_, b) in zip(theirs, ours, strict=True):
    assert torch.equal(a, b)

# %% [markdown]
# Samplers work as they are.

# %%
weights = [1.0 if label == 0 else 0.1 for label in train.targets]
weighted = DataLoader(train, batch_size=32, sampler=WeightedRandomSampler(weights, 64))
share = torch.cat([labels for _, labels in weighted]).eq(0).float().mean()
print(f"class 0 makes up {share:.0%} of the epoch")

# %% [markdown]
# ## 6. Any Dataset
#
# What is not a folder of pictures runs in worker processes.  Their number is found by measuring.


# %%
class Squares(Dataset):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.full((8,), float(index)), "y": torch.rand(()) + index**2}


squares = DataLoader(Squares(), batch_size=100, seed=3)
first = next(iter(squares))
assert first["x"].shape == (100, 8)

# %% [markdown]
# Python's, NumPy's and torch's global random numbers are seeded for each item, so the numbers do not depend
# on how many workers there are.

# %%
alone = next(iter(DataLoader(Squares(), batch_size=100, seed=3, num_workers=1)))
assert torch.equal(first["y"], alone["y"])

# %% [markdown]
# ## 7. When something is wrong
#
# A broken file is named.  `on_error="replace"` trains on and writes it down.

# %%
broken = root / "train" / train.classes[0] / "broken.jpg"
broken.write_bytes(b"not a picture")
spoiled = datasets.ImageFolder(str(root / "train"), train_transform)
try:
    for _ in DataLoader(spoiled, batch_size=32):
        pass
except Exception as error:
    print(f"{type(error).__name__}: {error}")
n_images = sum(len(labels) for _, labels in DataLoader(spoiled, batch_size=32, on_error="replace"))
assert n_images == len(spoiled)
broken.unlink()
place.cleanup()
