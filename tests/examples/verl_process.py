"""What the test of examples/verl asks of verl, in verl's environment: JSON on stdin, the answers as JSON on stdout.

Runs in the folder of the example. `variants` are lists of Hydra overrides by name; each is composed over the example's
configuration and checked by verl's own `validate_config`, and its loss is looked up in verl's registry and
differentiated at the log-probabilities that are given. `refused` are overrides that Hydra must not take.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_module
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.errors import ConfigCompositionException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.utils.import_utils import import_external_libs


class Folder(SearchPathPlugin):
    """What `--config-dir hydra` is on the command line."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the folder behind verl's own."""
        search_path.append("example", f"file://{Path('hydra').absolute()}")


def composed(overrides: list[str]) -> Any:
    return compose(config_name="ablation", overrides=overrides)


def loss_of(actor: Any, batch: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Return the registered loss, its gradient and its metrics, as verl's worker calls it."""
    logps = batch["logps"].clone().requires_grad_()
    loss, metrics = get_policy_loss_fn(actor.policy_loss.loss_mode)(
        old_log_prob=batch["old"],
        log_prob=logps,
        advantages=batch["advantages"],
        response_mask=batch["mask"].bool(),
        loss_agg_mode=actor.loss_agg_mode,
        config=actor,
        rollout_is_weights=batch.get("weights"),
    )
    loss.backward()
    assert all(isinstance(value, float) for value in metrics.values()), metrics
    return {"loss": loss.item(), "gradient": logps.grad.tolist(), "metrics": sorted(metrics)}


def main() -> None:
    asked = json.load(sys.stdin)
    batch = {name: torch.tensor(rows, dtype=torch.float64) for name, rows in asked["batch"].items()}
    sys.path.insert(0, str(Path.cwd()))  # as PYTHONPATH of train.sh
    Plugins.instance().register(Folder)
    answers: dict[str, Any] = {"variants": {}, "refused": {}}
    with initialize_config_module("verl.trainer.config", version_base=None):
        for name, overrides in asked["variants"].items():
            config = composed(overrides)
            import_external_libs(config.actor_rollout_ref.model.external_lib)  # as HFModelConfig does in every worker
            validate_config(config, need_reference_policy(config), need_critic(config))
            actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
            plain = OmegaConf.to_container(config, resolve=True)
            answers["variants"][name] = {"config": plain, **loss_of(actor, batch)}
        for override in asked["refused"]:
            try:
                composed([override])
                answers["refused"][override] = None
            except ConfigCompositionException as error:
                answers["refused"][override] = str(error).splitlines()[0]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
