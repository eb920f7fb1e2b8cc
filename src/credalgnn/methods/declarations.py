"""What a method says of itself, so that nobody asks for its type."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar, Literal, TypeAlias

from .components import Components
from .given import EvalProtocol
from .parameters import Parameters
from .search_space import Space

Objective: TypeAlias = Literal["accuracy", "nll", "auroc", "misclassification_auroc"]


class Declarations(Parameters):
    """What a method says of itself.

    Attributes:
        name: What a user types, and what tables show.
        score_names: The scores of its predictions; the first is the headline.
        is_credal: Whether it predicts credal sets.
        classifies_beside: Whether a classifier beside the credal sets gives the probabilities, which then need not lie
            in them.
        is_baseline: Whether it needs no model and learns nothing; such a one stands in every table.
        is_shared: Whether other methods stand on it by default, so that a benchmark keeps what it has fitted.
        uses_unlabelled: Whether unlabelled nodes teach it something else than messages along edges do, such as what is
            rare or what scale scores have. Leaderboards say so, since strangers may be among these nodes.
        has_outputs: Whether it has logits and latents (``outputs``), which post-hoc methods can score.
        works_by_chunks: Whether it learns and predicts without ever holding the whole graph, so that it works on graphs
            that are larger than memory; ``_predict`` then reads rows of features and ``graph.in_edges``, never
            ``graph.edge_index``.
        components: The fitted models it stands on, if any.
        search_space: What ``tune`` chooses its hyper-parameters from; empty: nothing is tuned.
    """

    name: ClassVar[str]
    score_names: ClassVar[tuple[str, ...]]
    is_credal: ClassVar[bool] = False
    classifies_beside: ClassVar[bool] = False
    is_baseline: ClassVar[bool] = False
    is_shared: ClassVar[bool] = False
    uses_unlabelled: ClassVar[bool] = False
    has_outputs: ClassVar[bool] = False
    works_by_chunks: ClassVar[bool] = False
    components: ClassVar[Components | None] = None
    search_space: ClassVar[Space] = {}

    @classmethod
    def protocol_defaults(cls, protocol: EvalProtocol) -> dict[str, Any]:
        """Hyper-parameters that have another default under a protocol than the constructor has.

        Args:
            protocol: ``"sealed"`` or ``"paper"``.
        """
        return {}

    @classmethod
    def objective(cls, protocol: EvalProtocol) -> Objective:
        """What tuning maximises on the validation nodes (of ``"nll"``, which it minimises, the negative).

        Sealed, ID nodes alone decide: how well the headline score finds misclassified ones, since a method that
        trains no classifier of its own does not change the classes. Under the paper's protocol: the AUROC of the
        headline score on OOD validation nodes.

        Args:
            protocol: ``"sealed"`` or ``"paper"``.
        """
        return "misclassification_auroc" if protocol == "sealed" else "auroc"

    @classmethod
    def space(cls, num_train: int) -> Space:
        """The search space on a task.

        Args:
            num_train: The task's number of training nodes.
        """
        return cls.search_space

    @classmethod
    def can_prune(cls, protocol: EvalProtocol) -> bool:
        """Whether tuning may give up a trial whose monitor is worse than that of most others at the same epoch.

        Args:
            protocol: ``"sealed"`` or ``"paper"``.
        """
        return False

    @classmethod
    def decomposition(cls) -> tuple[str, str | None]:
        """The scores that stand for epistemic (EU, or the headline) and for aleatoric uncertainty, if one does."""
        epistemic = "EU" if "EU" in cls.score_names else cls.score_names[0]
        return epistemic, "AU" if "AU" in cls.score_names else None

    @classmethod
    def has_seed(cls) -> bool:
        """Whether runs with several seeds differ: whether there is a hyper-parameter ``seed``."""
        return any(field.name == "seed" for field in fields(cls))  # type: ignore[arg-type]

    @classmethod
    def trains_by_batches(cls) -> bool:
        """Whether it, or what it stands on, is a network that mini-batches train: what several processes can share."""
        return cls.components is not None and cls.components.kind.trains_by_batches()
