"""The configured alert sources, made, started and closed together; their alerts go into the book that the predictor
`alerts` reads. Its settings (`[failure.settings.alerts]`) are theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from eslurm.alerts.prometheus import PrometheusOptions, PrometheusPoller
from eslurm.alerts.updates import AlertUpdate, Changed, Firing
from eslurm.alerts.webhook import Webhook, WebhookOptions
from eslurm.config.problems import ConfigError
from eslurm.config.sections import FailureSection
from eslurm.core.prediction.alerts import FiringAlerts
from eslurm.security.files import UnsafeFile, read_private
from eslurm.telemetry import logs

log = logging.getLogger(__name__)

SETTINGS = "alerts"
STALE_INTERVALS = 4
STALE_AFTER_MIN_S = 60.0

Positive = Annotated[float, Meta(gt=0)]


class AlertSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[failure.settings.alerts]`: settings that few sites need to change."""

    query: str = ""
    """PromQL expression each of whose series predicts its node's failure; empty: the firing alerts do."""
    pending: bool = False
    """True: alerts still within their rule's `for` count, too."""
    prometheus_timeout_s: Positive = 10.0
    """Seconds that Prometheus may take for one answer."""
    stale_after_s: Annotated[float, Meta(ge=0)] = 0.0
    """Seconds for which the last answer holds while none comes; 0: four intervals, at least a minute."""
    webhook_token_file: str = ""
    """File (mode 0600) with the token that the webhook's callers must carry: 16 characters or more."""
    webhook_allow_anonymous: bool = False
    """True: every user of this host may send alerts, without a token; for a loopback address only."""
    webhook_expires_s: Positive = 5 * 3600.0
    """Seconds after which an alert that is not told again is over; above Alertmanager's repeat_interval."""


class AlertSources:
    """Made inside the running loop; `start`, then `close`. Raises `ConfigError` that names the key.

    `book` is changed on the loop only; `now_us` is the controller's clock (UTC).
    """

    def __init__(
        self,
        failure: FailureSection,
        book: FiringAlerts,
        now_us: Callable[[], int],
        origin: str = "configuration",
    ) -> None:
        self._book = book
        settings = read_settings(failure, origin)
        self.prometheus: PrometheusPoller | None = None
        self.webhook: Webhook | None = None
        self.webhook_endpoint = ""
        if failure.prometheus_url:
            try:
                self.prometheus = PrometheusPoller(_prometheus(failure, settings), self._on_alerts)
            except ValueError as error:
                raise ConfigError(f"{origin}: failure.prometheus_url: {error}") from None
        if failure.webhook_listen:
            try:
                self.webhook = Webhook(_webhook(failure, settings, origin), self._on_alerts, now_us)
            except ValueError as error:
                raise ConfigError(f"{origin}: failure.webhook_listen: {error}") from None

    async def start(self) -> None:
        """Listen and begin to poll. Raises OSError when the webhook's address cannot be bound."""
        if self.webhook is not None:
            self.webhook_endpoint = await self.webhook.start()
        if self.prometheus is not None:
            self.prometheus.start()

    async def close(self) -> None:
        """End both at once; nothing is delivered afterwards."""
        if self.prometheus is not None:
            await self.prometheus.close()
        if self.webhook is not None:
            await self.webhook.close()

    def _on_alerts(self, update: AlertUpdate) -> None:
        match update:
            case Firing(source, alerts):
                messages = self._book.set_firing(source, alerts)
            case Changed(source, firing, resolved):
                messages = self._book.change(source, firing, resolved)
        for message in messages:
            log.warning("%s", message)


def read_settings(failure: FailureSection, origin: str = "configuration") -> AlertSettings:
    """The alert sources' settings, checked. Raises `ConfigError`."""
    try:
        return msgspec.convert(failure.settings.get(SETTINGS, {}), AlertSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{origin}: failure.settings.{SETTINGS}: {error}") from None


def _prometheus(failure: FailureSection, settings: AlertSettings) -> PrometheusOptions:
    return PrometheusOptions(
        url=failure.prometheus_url,
        node_label=failure.node_label,
        query=settings.query,
        pending=settings.pending,
        interval_s=failure.prometheus_interval_s,
        timeout_s=settings.prometheus_timeout_s,
        stale_after_s=settings.stale_after_s
        or max(STALE_INTERVALS * failure.prometheus_interval_s, STALE_AFTER_MIN_S),
    )


def _webhook(failure: FailureSection, settings: AlertSettings, origin: str) -> WebhookOptions:
    token = ""  # nosec B105 # none
    if settings.webhook_token_file:
        key = f"failure.settings.{SETTINGS}.webhook_token_file"
        try:
            token = read_private(Path(settings.webhook_token_file)).decode("ascii").strip()
        except (UnsafeFile, UnicodeError) as error:
            raise ConfigError(f"{origin}: {key}: {error}") from None
        if not token.isprintable() or not token:
            raise ConfigError(f"{origin}: {key}: {settings.webhook_token_file} holds no token in one line")
        logs.hide(token)
    return WebhookOptions(
        listen=failure.webhook_listen,
        node_label=failure.node_label,
        token=token,
        allow_anonymous=settings.webhook_allow_anonymous,
        expires_after_s=settings.webhook_expires_s,
    )
