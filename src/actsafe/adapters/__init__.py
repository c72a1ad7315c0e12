"""Doors to other libraries. Importing this package is cheap: the environments load when the first one is made."""

# By name: `import gymnasium` here would be shadowed as soon as our own submodule of that name is imported.
from gymnasium.envs.registration import register as register_environment
from gymnasium.envs.registration import registry

_NAMES = ("pendulum", "cartpole")


def register() -> None:
    """Nothing; afterwards `gymnasium.make("actsafe/Pendulum-v0")` and `"actsafe/Cartpole-v0"` work.

    Entry points are strings, so that neither JAX nor an environment is imported here. No `max_episode_steps` is given:
    the environments truncate themselves after `num_decisions`, and a second clock could disagree with it.
    """
    for name in _NAMES:
        environment_id = f"actsafe/{name.capitalize()}-v0"
        # Gymnasium warns when an id is registered twice; an import that is repeated is no fault of the user.
        if environment_id not in registry:
            register_environment(
                environment_id,
                entry_point="actsafe.adapters.gymnasium:ProblemEnv",
                vector_entry_point="actsafe.adapters.gymnasium:ProblemVectorEnv",
                kwargs={"problem": name},
            )
