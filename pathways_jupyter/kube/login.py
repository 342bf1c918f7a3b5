"""The users of a kubeconfig whose credentials the `kubernetes` package reads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pathways_jupyter.errors import ClusterError
from pathways_jupyter.kube.credentials import CREDENTIAL_SECONDS

if TYPE_CHECKING:
    from pathways_jupyter.kube.library import Loader


class Login:
    """A kubeconfig's token, password or ``auth-provider``, read by the `kubernetes` package.

    Args:
      user: The fields of the kubeconfig's user.
      hint: What the user can do when the login fails or is refused.
    """

    def __init__(self, user: Mapping[str, Any], *, hint: str) -> None:
        self._user = user
        self._loader: Loader | None = None
        self._lock = asyncio.Lock()
        self.hint = hint

    async def authorization(self) -> str:
        """See :class:`~pathways_jupyter.kube.credentials.Credentials`."""
        # The lock, because a provider that is asked twice at the same time may invalidate its own first answer.
        async with self._lock:
            if self._loader is None:
                # Here, because a context can be read, and shown, without importing the package.
                from pathways_jupyter.kube.library import Loader

                self._loader = Loader(self._user)
            try:
                async with asyncio.timeout(CREDENTIAL_SECONDS):
                    return await self._loader.authorization()
            except TimeoutError as error:
                raise ClusterError(
                    f"No credentials were received within {CREDENTIAL_SECONDS:g} s.", hint=self.hint
                ) from error
            except ClusterError as error:
                raise ClusterError(str(error), hint=self.hint) from error

    async def renew(self) -> bool:
        """See :class:`~pathways_jupyter.kube.credentials.Credentials`."""
        self._loader = None
        return "auth-provider" in self._user
