"""Is a compiled result as good as eager's? Judged against a float64 run, with eager as competitor.

In: our tensor, eager's, and the float64 reference. Out: nothing, or an AssertionError with the
name and both errors. Integers and bools must be equal; dtype, shape and strides always.
"""

from __future__ import annotations

import torch

# Ours may be this much farther from the float64 run than eager: another order of summation is as
# likely to be worse as to be better, and single errors scatter more than their mean.
RMS_FACTOR = 1.5
MAX_FACTOR = 3.0
# Where eager happens to be exact: so many units in the last place of the largest value.
FLOOR_ULPS = 4.0


def assert_same_kind(ours: torch.Tensor, eager: torch.Tensor, name: str = "result") -> None:
    """Equal dtype, shape and stride (strides of axes of size 1, and of empty tensors, are free)."""
    assert ours.dtype == eager.dtype, f"{name}: dtype {ours.dtype}, eager {eager.dtype}"
    assert ours.shape == eager.shape, f"{name}: shape {ours.shape}, eager {eager.shape}"
    if eager.numel():
        mine, theirs = (
            tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1)
            for t in (ours, eager)
        )
        assert mine == theirs, f"{name}: strides {ours.stride()}, eager {eager.stride()}"


def assert_no_farther(
    ours: torch.Tensor,
    eager: torch.Tensor,
    reference: torch.Tensor,
    name: str = "result",
    *,
    floor: float | None = None,
) -> None:
    """Ours lies no farther from `reference` than eager does, by mean square and by largest error.

    `reference` is the same computation in float64 (complex128). `floor` is the error that counts as
    exact; by default some units in the last place of the largest reference value. Give it where the
    values do not show their own rounding: a gradient that is zero but for cancellation, or the mean
    of many rough values, whose error eager may miss by luck.
    """
    assert_same_kind(ours, eager, name)
    if not (eager.is_floating_point() or eager.is_complex()):
        assert torch.equal(ours, eager), f"{name}: {_first_difference(ours, eager)}"
        return
    ours64, eager64, exact = (
        _parts(t) for t in (ours.detach(), eager.detach(), reference.detach())
    )
    assert exact.shape == eager64.shape, f"{name}: reference has shape {tuple(reference.shape)}"
    finite = torch.isfinite(eager64)
    special_ours, special_eager = ours64[~finite], eager64[~finite]
    assert torch.equal(torch.isfinite(ours64), finite), (
        f"{name}: not finite where eager is, or finite where it is not"
    )
    assert torch.equal(special_ours.nan_to_num(7.0), special_eager.nan_to_num(7.0)), (
        f"{name}: NaN or infinity where eager has another"
    )
    finite &= torch.isfinite(exact)
    if not finite.any():
        return
    error_ours = (ours64 - exact)[finite].abs()
    error_eager = (eager64 - exact)[finite].abs()
    largest = float(exact[finite].abs().max())
    if floor is None:
        floor = ulps(eager.dtype, largest)
    for kind, factor, mine, theirs in (
        ("mean square", RMS_FACTOR, _rms(error_ours), _rms(error_eager)),
        ("largest", MAX_FACTOR, float(error_ours.max()), float(error_eager.max())),
    ):
        assert mine <= factor * theirs + floor, (
            f"{name} {tuple(eager.shape)} {eager.dtype}: {kind} error against float64 is "
            f"{mine:.3g}, eager's {theirs:.3g} (largest value {largest:.3g})"
        )


def ulps(dtype: torch.dtype, value: float) -> float:
    """The error at values of this size that nobody need explain."""
    return FLOOR_ULPS * torch.finfo(dtype).eps * value


def rms_error(value: torch.Tensor, reference: torch.Tensor) -> float:
    """Root of the mean square of the difference, in float64."""
    return _rms(value.detach().double() - reference.detach().double())


def _parts(tensor: torch.Tensor) -> torch.Tensor:
    """float64 values; complex numbers as pairs."""
    if tensor.is_complex():
        return torch.view_as_real(tensor.to(torch.complex128).resolve_conj())
    return tensor.to(torch.float64)


def _rms(error: torch.Tensor) -> float:
    return float(error.square().mean().sqrt())


def _first_difference(ours: torch.Tensor, eager: torch.Tensor) -> str:
    differs = (ours != eager).nonzero()
    where = tuple(differs[0].tolist())
    return (
        f"{len(differs)} of {eager.numel()} elements differ, first at {where}: "
        f"{ours[where].item()}, eager {eager[where].item()}"
    )
