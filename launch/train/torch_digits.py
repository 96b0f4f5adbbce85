"""PyTorch learns spoken digits: ``torch_digits.py FSDD_FOLDER [--epochs N]``.

It is tested with speakers that it has never heard.
"""

import torch
from digits import parse_arguments, record_digits, show_results
from torch import nn
from torch.utils.data import DataLoader

from beam_pipeline import open_records


class Network(nn.Module):
    """Two convolutions over bands and time, two over time, the maximum over time."""

    def __init__(self, bins, classes):
        super().__init__()
        self.spectrum = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding="same", bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d((1, 2)),
            nn.Conv2d(16, 32, 3, padding="same", bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.time = nn.Sequential(
            nn.Conv1d(bins // 4 * 32, 96, 5, padding="same", bias=False),
            nn.BatchNorm1d(96),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(96, 96, 3, padding="same"),
            nn.ReLU(),
        )
        self.classes = nn.Sequential(nn.Dropout(0.4), nn.Linear(96, classes))

    def forward(self, mel):  # (batch, frames, bins)
        found = self.spectrum(mel[:, None])  # (batch, channels, frames, bins)
        found = self.time(found.transpose(2, 3).flatten(1, 2))
        return self.classes(found.amax(dim=2))


def main():
    arguments = parse_arguments(__doc__, epochs=8)
    torch.manual_seed(arguments.seed)
    records = record_digits(arguments.sounds, arguments.out, arguments.test)
    names = ["mel", "target"]
    train = open_records(records, "train", features=names)
    test = open_records(records, "test", features=names)
    loader = DataLoader(train, batch_size=64, shuffle=True)

    model = Network(train.features["mel"].shape[1], train.num_classes)
    optimizer = torch.optim.AdamW(model.parameters())
    steps = arguments.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for epoch in range(arguments.epochs):
        total = 0.0
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["mel"]), batch["target"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: loss {total / len(loader):.3f}", flush=True)

    model.eval()
    with torch.no_grad():
        found = [model(batch["mel"]) for batch in DataLoader(test, batch_size=250)]
    show_results(records, torch.cat(found).softmax(dim=1).numpy())


if __name__ == "__main__":
    main()
