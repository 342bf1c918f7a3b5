"""The sources of a connection's settings: arguments, environment, and profiles.

pathwaysutils' names for some settings are accepted in all, see :data:`pathways_jupyter.base.config.ALIASES`.

Precedence, highest first: arguments, environment, a named profile, defaults. Profiles live in ``pathways.toml`` in
Jupyter's config directory, one table per profile::

    [profiles.team]
    context = "gke_my-project_us-east5_tpus"
    service = "pathways-cluster-pathways-head-0-0.pathways-cluster:29001"
    tpu = "tpuv6e:2x2=2"

    [profiles.default]      # used when no profile is named
    namespace = "research"
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pathways_jupyter.base import setting_values, text_files
from pathways_jupyter.base.config import ALIASES, ENVIRONMENT_PREFIX, SETTINGS, ConnectConfig
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import advice, option

_OWN_PROXY = frozenset(spec.name for spec in SETTINGS.values() if spec.of == "proxy")
"""Settings of a proxy of one's own, which a session that uses the proxy of a job does not have."""


def resolve(arguments: Mapping[str, Any], *, environ: Mapping[str, str] | None = None) -> ConnectConfig:
    """Make a validated config from `arguments`, the environment and the profile.

    Args:
      arguments: Values by the names of settings or by their aliases. None means not given.
      environ: The environment to read instead of the process's own.

    Raises:
      ConfigError: A value is malformed, a name is not a setting, two names of one setting have different values, one
        lacks what it belongs to, or the profile does not exist.
    """
    explicit = _checked({name: value for name, value in arguments.items() if value is not None}, "{}".format)
    from_environment = _from_environment(os.environ if environ is None else environ)
    name = str(explicit.get("profile") or from_environment.get("profile") or "")
    values = {**_from_profile(name), **from_environment, **explicit}
    if values.get("job"):
        values = _for_job(values, explicit)
    if "tpu" in values:
        values["instances"] = values.pop("tpu")
    config = ConnectConfig(**values)
    # In a profile or in the environment these are for those connections that have a relay.
    if of_relay := sorted({"keep", "relay_image"} & set(explicit)):
        if config.relay is False:
            raise ConfigError(
                f"{of_relay[0]} was given, but no relay.",
                hint=advice("Leave out {no_relay} or {it}.", it=option(of_relay[0])),
            )
        config = replace(config, relay=True)
    # In a profile or in the environment it is for those connections that have a queue.
    setting_values.check_priority(explicit.get("priority", ""), config.queue)
    if config.cluster and not (config.project and config.region):
        raise ConfigError(
            f"Cluster {config.cluster!r} needs its project and region.",
            hint=advice("Add {project} and {region}, or use {context}."),
        )
    if config.instances and config.at_least > (requested := sum(config.instances.values())):
        raise ConfigError(
            f"At least {config.at_least} slices were asked for, but only {requested} in all.",
            hint=advice("Raise the number in {tpu}, or ask for {at_least:{wanted}}.", wanted=requested),
        )
    return config


def _for_job(values: Mapping[str, Any], explicit: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` for a session that uses a job's proxy; those for a proxy of one's own do not apply to it.

    Raises:
      ConfigError: Both are among `explicit`, the arguments.
    """
    both = sorted(name for name in _OWN_PROXY if explicit.get(name))
    if both and not explicit.get("job"):
        # Those for a proxy were asked for here and now, the job by a profile or the environment.
        return {name: value for name, value in values.items() if name != "job"}
    if both:
        raise ConfigError(
            f"Job {values['job']} has its proxy and its slices already, so {both[0]} does not apply.",
            hint=advice("Leave out {it} to attach to the job, or {job} for a proxy of your own.", it=option(both[0])),
        )
    return {name: value for name, value in values.items() if name not in _OWN_PROXY}


def canonical(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with aliases replaced by the settings' own names."""
    return {ALIASES.get(name, name): value for name, value in values.items()}


def profiles() -> dict[str, dict[str, Any]]:
    """Return all profiles by name.

    Raises:
      ConfigError: The file is not valid TOML, has something else than ``profiles``, or that is not a table of tables.
    """
    path = profiles_path()
    try:
        # Opening a named pipe waits for a writer.
        if path.exists() and not path.is_file():
            raise OSError("it is not a file")
        content = tomllib.loads(text_files.read(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        # Not valid TOML or no text, or a number of thousands of digits, which are all ValueErrors.
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigError(
            f"{path} cannot be read: {reason}.", hint="Fix the file, or move it away to use the defaults."
        ) from error
    # A table that is misspelled would be a profile that is never used.
    if further := sorted(set(content) - {"profiles"}):
        raise ConfigError(f"{path}: {further[0]} is not known here.", hint="Write each profile as [profiles.NAME].")
    tables = content.get("profiles", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ConfigError(f"{path}: profiles must be tables.", hint="Write each profile as [profiles.NAME].")
    return tables


def profiles_path() -> Path:
    """Return the path of the file with the profiles."""
    from jupyter_core.paths import jupyter_config_dir

    return Path(jupyter_config_dir()) / "pathways.toml"


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings in the environment; an empty variable counts as not set."""
    variables = {
        name.removeprefix(ENVIRONMENT_PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(ENVIRONMENT_PREFIX) and value
    }
    return _checked(variables, lambda name: f"{ENVIRONMENT_PREFIX}{name.upper()}")


def _from_profile(name: str) -> dict[str, Any]:
    available = profiles()
    if name and name not in available:
        listed = ", ".join(sorted(available)) or "none yet"
        raise ConfigError(f"There is no profile {name!r}.", hint=f"Profiles in {profiles_path()}: {listed}.")
    profile = name or "default"
    settings = available.get(profile, {})
    if "profile" in settings:
        raise ConfigError(
            f"Profile {profile!r} of {profiles_path()} names another profile, whose settings would not be used.",
            hint="Write the settings themselves, and leave out profile.",
        )
    return _checked(settings, lambda setting: f"{setting} in profile {profile!r} of {profiles_path()}")


def _checked(settings: Mapping[str, Any], label: Callable[[str], str]) -> dict[str, Any]:
    """Validate the settings of one source; return them under the settings' own names.

    Args:
      label: Returns how an error refers to the setting of a name, e.g. the environment variable.
    """
    checked: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for name, value in settings.items():
        setting = ALIASES.get(name, name)
        if setting not in SETTINGS:
            raise _unknown(name, label)
        try:
            result = SETTINGS[setting].check(value, label(name))
        except ConfigError as error:
            # What was typed is known; a variable or a profile may be long forgotten.
            if label(name) == name or label(name) in str(error):
                raise
            raise type(error)(f"{label(name)}: {error}", hint=error.hint) from None
        if setting in checked and checked[setting] != result:
            raise ConfigError(
                f"{label(spelled[setting])} and {label(name)} are two names of one setting, and their values differ.",
                hint=f"Leave out {name if setting == spelled[setting] else spelled[setting]}.",
            )
        checked[setting], spelled[setting] = result, name
    return checked


def _unknown(name: str, label: Callable[[str], str]) -> ConfigError:
    spellings = [*SETTINGS, *ALIASES]
    # The beginning of a setting's name is more likely meant than a similar name.
    longer = [each for each in spellings if each.startswith(f"{name}_")]
    close = longer if len(longer) == 1 else difflib.get_close_matches(name, spellings, n=1, cutoff=0.5)
    # Environment variables are in capitals.
    spell = str.upper if label(name).startswith(ENVIRONMENT_PREFIX) else str
    prefix = ENVIRONMENT_PREFIX if spell is str.upper else ""
    listed = f"Settings: {', '.join(spell(each) for each in sorted(SETTINGS))}."
    return ConfigError(
        f"Unknown setting {label(name)}.",
        hint=f"Did you mean {prefix}{spell(close[0])}? {listed}" if close else listed,
    )
