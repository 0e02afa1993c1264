"""A convolutional network of ResNet-18's size, in evaluation mode.

Batch statistics are random, so that nothing cancels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.case import Case, Prepared, forward


class Basic(nn.Module):
    """Two 3x3 convolutions beside a residual."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.short = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """float32[B, inputs, H, W] -> float32[B, outputs, H/stride, W/stride]."""
        y = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
        return torch.relu(y + self.short(x))


def resnet18() -> nn.Module:
    """float32[B, 3, 224, 224] -> float32[B, 1000]."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    width = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Basic(width, outputs, stride), Basic(outputs, outputs, 1)]
        width = outputs
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return model.eval()


def _resnet(batch: int) -> Prepared:
    return forward(resnet18(), torch.randn(batch, 3, 224, 224))


CASES = (
    Case("resnet18-b1", lambda: _resnet(1)),
    Case("resnet18-b8", lambda: _resnet(8)),
)
