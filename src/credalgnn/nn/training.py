"""The one training loop: Adam, early stopping by a named monitor, the best weights restored, seeded."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from .batches import MiniBatch
from .draws import RngScope
from .edge_rows import EdgeRows
from .progress import Progress
from .rounds import Classifier, FullBatch, Group, Monitor, Schedule, Strategy, Supervision
from .rounds import Epoch as Epoch
from .rounds import Output as Output
from .rounds import at as at

SLOWER = 0.3  # what a learning rate is multiplied by where it has brought nothing for a while ...
FALLS = 4  # ... so many times at the most: weights that hardly move would only wait for the end


class TrainingError(RuntimeError):
    """Training went wrong in a way that more epochs will not mend."""


class CheckpointStore(Protocol):
    """Where the state of a training is kept between epochs, so that it can go on after a crash."""

    def load(self) -> dict[str, Any] | None:
        """What was saved last, if anything: plain values, lists, dictionaries and tensors."""

    def save(self, state: Callable[[], dict[str, Any]], ended: bool) -> None:
        """Keep the state.

        Args:
            state: Makes it, where it is wanted; ``curve`` and ``best_state`` are what has come of it so far.
            ended: Whether there is nothing left to train.
        """


def train(
    model: Classifier,
    data: Supervision,
    loss: Callable[[Output, Tensor], Tensor],
    monitor: Monitor,
    schedule: Schedule,
    draws: RngScope,
    *,
    progress: bool | None = None,
    description: str = "training",
    on_epoch: Callable[[Epoch], None] | None = None,
    group: Group | None = None,
    keeper: CheckpointStore | None = None,
    after_reading: Callable[[], None] | None = None,
) -> list[Epoch]:
    """Minimise a loss on labelled nodes; keep the weights, of batches averaged, with which the monitor was least.

    Weight decay is L2, as Adam has it. The curve has one line more than there were epochs: it begins with the untrained
    weights, which are never kept. Where edges are given by ``EdgeRows``, mini-batches with sampled neighbourhoods are
    trained on (``batches.Sampled``), and the graph is never looked at as a whole; the learning rate then falls whenever
    the monitor has not been better for a while, and training goes on from the weights with which it was least.

    Args:
        model: What to train, in place.
        data: What to train it on.
        loss: Of the model's output at the nodes and of their labels.
        monitor: What early stopping looks at.
        schedule: Hyper-parameters of the loop.
        draws: Where batches, dropout and whatever else is random come from.
        progress: Show a bar; None: on a terminal, once it has taken a few seconds, and elsewhere a line each half
            minute.
        description: What the bar says.
        on_epoch: Is shown each line of the curve as it comes; what it raises ends the training.
        group: Other processes that train the same model on their share of each batch.
        keeper: Where the state is kept after every epoch and at the end, and gone on from.
        after_reading: Is called when rows of features have been read for a mini-batch.
    """
    groups, decay = model.parameter_groups(), schedule.weight_decay
    optimiser = torch.optim.Adam(groups, lr=schedule.lr, weight_decay=decay, fused=True)
    rounds: Strategy
    if isinstance(data.edges, EdgeRows):
        rounds = MiniBatch(model, data, loss, monitor, schedule, draws, group, after_reading)
    else:
        rounds = FullBatch(model, data, loss, monitor, draws)
    slower: ReduceLROnPlateau | None = None
    if rounds.plateau is not None:
        least = [SLOWER**FALLS * group["lr"] for group in optimiser.param_groups]
        slower = ReduceLROnPlateau(optimiser, factor=SLOWER, patience=rounds.plateau - 1, threshold=0.0, min_lr=least)
    curve: list[Epoch] = []
    best, best_epoch = float("inf"), 0
    best_state: dict[str, Tensor] | None = None
    ended = False

    def state() -> dict[str, Any]:
        return {
            "curve": [tuple(line) for line in curve],
            "best": best,
            "best_epoch": best_epoch,
            "best_state": best_state,
            "model": model.state_dict(),
            "optimiser": optimiser.state_dict(),
            "draws": draws.state(),
            "rounds": rounds.state(),
            "slower": {} if slower is None else slower.state_dict(),
            "ended": ended,
        }

    if keeper is not None and (kept := keeper.load()) is not None:
        try:
            curve = [Epoch(*line) for line in kept["curve"]]
            best, best_epoch, best_state, ended = (kept[name] for name in ("best", "best_epoch", "best_state", "ended"))
            model.load_state_dict(kept["model"])
            optimiser.load_state_dict(kept["optimiser"])
            draws.restore(kept["draws"])
            rounds.restore(kept["rounds"])
            if slower is not None:
                slower.load_state_dict(kept["slower"])
        except (LookupError, RuntimeError, TypeError, ValueError, AttributeError) as error:
            reason = " ".join(str(error).split())
            raise TrainingError(
                f"what was kept of this training is not of it ({reason:.100}): remove the folder of its checkpoints "
                "(checkpoints, in that of the model), and fit again"
            ) from None
    with Progress(schedule.epochs, max(0, len(curve) - 1), description, progress) as shown:
        for epoch in range(len(curve), 0 if ended else schedule.epochs + 1):
            with rounds.judged():
                value, watched = rounds.look()
                curve.append(Epoch(epoch, _finite(value, epoch, schedule), watched))
                if epoch and curve[-1].monitor < best:  # the untrained weights are never kept
                    best, best_epoch = curve[-1].monitor, epoch
                    best_state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
                slows_down = slower is not None and epoch > 0 and _falls(slower, watched)
                if on_epoch is not None:
                    on_epoch(curve[-1])
            if epoch == schedule.epochs or epoch - best_epoch >= schedule.patience:
                break
            if slows_down and best_state is not None:
                rounds.go_on_from(best_state)
            shown.epoch(curve[-1])
            steps = rounds.steps
            for number, step in enumerate(rounds.losses(), 1):
                _finite(step, epoch, schedule)
                optimiser.zero_grad()
                step.backward()  # type: ignore[no-untyped-call]
                rounds.share()
                optimiser.step()
                rounds.stepped()
                shown.step(number, steps)
            if keeper is not None:
                keeper.save(state, ended)
    if best_state is None:
        raise TrainingError(f"the monitor was never a number in {len(curve)} epochs: lower lr (now {schedule.lr})")
    if keeper is not None and not ended:
        ended = True
        keeper.save(state, ended)
    model.load_state_dict(best_state)
    model.eval()
    return curve


def _falls(slower: ReduceLROnPlateau, watched: float) -> bool:
    """Whether the learning rate falls with what the monitor says now."""
    groups = slower.optimizer.param_groups
    before = [group["lr"] for group in groups]
    slower.step(watched)
    return [group["lr"] for group in groups] != before


def _finite(value: Tensor, epoch: int, schedule: Schedule) -> float:
    number = value.item()
    if not math.isfinite(number):
        raise TrainingError(
            f"the loss is {number} in epoch {epoch}: lower lr (now {schedule.lr}), or scale the features"
        )
    return number
