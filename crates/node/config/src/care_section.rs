//! Turns the sections about a replica's checks, metrics and limits into the settings that the
//! keeper works with.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Uri;
use spillway_health::{CircuitBreakerConfig, HealthConfig, StandbyConfig};
use spillway_replicas::{DeepRequest, Mapping, NoticeCheck, ServerKind};
use spillway_types::ModelName;
use toml::Spanned;

use crate::error::{ConfigError, ConfigErrors};
use crate::health_section::{DeepSection, HealthSection, StandbySection};
use crate::kind_settings::{DeepSettings, HealthSettings, KindSettings, MetricsSettings, Preset};
use crate::replica::{Care, Concurrency};
use crate::replica_section::{ConcurrencySection, ReplicaSection, check_host};
use crate::source::Source;

/// Least pause in ms between two checks of an overflow replica that sets none itself: its server is
/// another company's.
const OVERFLOW_CHECK_MS: u64 = 10_000;

/// Defaults for all replicas that set nothing else.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CareDefaults {
    health: HealthSection,
    standby: StandbySection,
    mappings: BTreeMap<String, Mapping>,
    pub(crate) classes: BTreeMap<String, Spanned<u32>>,
}

impl CareDefaults {
    pub(crate) fn new(
        health: HealthSection,
        standby: StandbySection,
        classes: BTreeMap<String, Spanned<u32>>,
        mappings: BTreeMap<String, Mapping>,
    ) -> Self {
        Self { health, standby, mappings, classes }
    }

    fn health(&self, deep: Option<&DeepSection>) -> HealthConfig {
        let health = &self.health;
        let breaker = CircuitBreakerConfig {
            error_percent: health.breaker_percent,
            window_ms: health.breaker_window_ms,
            requests_min: health.breaker_requests_min,
            open_ms: health.breaker_open_ms,
            ..CircuitBreakerConfig::default()
        };
        HealthConfig {
            rise: health.rise,
            fall: health.fall,
            eject_after: health.eject_after,
            // A failed connection is rarely chance: three in a row are enough.
            connect_eject_after: health.eject_after.min(3),
            eject_ms: health.eject_ms,
            // A maximum below the first ejection would shorten that.
            eject_max_ms: health.eject_max_ms.max(health.eject_ms),
            // Longer than any ejection: otherwise a flapping replica would never be ejected for
            // longer.
            eject_forget_ms: 2 * health.eject_max_ms.max(health.eject_ms),
            ejected_share_percent: health.ejected_percent_max,
            slow_ratio: health.slow_ratio,
            stall_ms: health.stall_ms,
            gpu_memory_use_max: deep
                .and_then(|deep| deep.gpu_memory_max.as_ref())
                .map(|max| *max.get_ref()),
            breaker,
            retry_after_max_ms: health.retry_after_max_ms,
            stale_half_life_ms: health.stale_half_life_ms,
            warm_up_max_ms: health.warm_up_max_ms,
            ..HealthConfig::default()
        }
    }

    fn standby(&self) -> StandbyConfig {
        let standby = &self.standby;
        let p99_ms = (standby.p99_ms > 0).then_some(standby.p99_ms as f32);
        StandbyConfig {
            queue: (standby.queued > 0.0).then_some(standby.queued),
            p99_ms,
            promote_after_ms: standby.promote_after_ms,
            demote_after_ms: standby.demote_after_ms,
            ..StandbyConfig::default()
        }
    }
}

impl ReplicaSection {
    /// Returns the replica's care as the config alone determines it, before its kind is detected.
    ///
    /// # Errors
    /// Returns the first fault, with its line.
    pub(crate) fn care(
        &self,
        settings: &KindSettings,
        defaults: &CareDefaults,
        source: &Source,
    ) -> Result<Care, ConfigError> {
        let slow_start_ms = self.slow_start_ms.unwrap_or(defaults.health.slow_start_ms);
        let deep = self.deep.as_ref().map(Spanned::get_ref);
        let models: Vec<ModelName> = self
            .models
            .iter()
            .flat_map(|models| models.get_ref().iter())
            .map(|model| ModelName::from(model.get_ref().as_str()))
            .collect();
        // A server that is yet to be recognised is cared for as a generic one until then.
        let Preset { active, deep: deep_check, scrapes, .. } = settings.preset(None, &models);
        Ok(Care {
            health: defaults.health(deep),
            slow_start: Duration::from_millis(slow_start_ms),
            bucket: self.bucket.into(),
            standby: self.standby.then(|| defaults.standby()),
            warm_up: self.warm_up.clone(),
            // Its models are given, and its pages are not asked for without a reason.
            identity: settings.identity().filter(|_| !self.is_overflow()),
            active,
            deep: deep_check,
            notice: self.notice(source)?,
            notice_limit: Duration::from_millis(self.notice_ms),
            scrapes,
            concurrency: self.concurrency(),
        })
    }

    /// Returns the settings whose meaning depends on the kind of server.
    ///
    /// # Errors
    /// Returns all faults, with their lines.
    pub(crate) fn kind_settings(
        &self,
        defaults: &CareDefaults,
        source: &Source,
    ) -> Result<KindSettings, ConfigErrors> {
        let (own, usual) = (&self.health, &defaults.health);
        let mut errors = ConfigErrors::default();
        let metrics = errors.keep(self.metrics_settings(defaults, source));
        let deep = errors.keep(self.deep_settings(defaults, source));
        let (Some(metrics), Some(deep)) = (metrics, deep) else { return Err(errors) };
        // A hosted API is not recognised by pages of engines, and is checked seldom.
        let kind = self.kind().or_else(|| self.is_overflow().then_some(ServerKind::Generic));
        let interval_ms = match self.is_overflow() {
            true => usual.interval_ms.max(OVERFLOW_CHECK_MS),
            false => usual.interval_ms,
        };
        let settings = KindSettings {
            kind,
            needs_models: self.models.is_none(),
            health: HealthSettings {
                check: own.check.unwrap_or(usual.check),
                path: own.path.clone(),
                port: own.port,
                service: own.service.clone(),
                interval: Duration::from_millis(own.interval_ms.unwrap_or(interval_ms)),
                timeout: Duration::from_millis(own.timeout_ms.unwrap_or(usual.timeout_ms)),
            },
            metrics,
            deep,
        };
        if settings.needs_models && settings.identity().is_none() {
            let message = "which models the replica serves is not said, and it can't be asked";
            let remedy = "name them, e.g. models = [\"llama-3.1-8b\"]: only what is checked over HTTP \
                          and lists its models can be asked";
            return Err(source.fault(self.name.span(), message, remedy).into());
        }
        Ok(settings)
    }

    /// Returns the kind of concurrency limit. A configured maximum is fixed, unless the section
    /// makes it an upper bound of an adaptive limit.
    fn concurrency(&self) -> Concurrency {
        match (self.concurrency, self.connections_max) {
            (None, Some(_)) => Concurrency::Fixed,
            // Nothing is known of its queue, and its replies are no measure of this node's load.
            (None, None) if self.is_overflow() => Concurrency::Unlimited,
            (None, None) | (Some(ConcurrencySection::Adaptive), _) => Concurrency::Adaptive,
            (Some(ConcurrencySection::Unlimited), _) => Concurrency::Unlimited,
        }
    }

    fn deep_settings(
        &self,
        defaults: &CareDefaults,
        source: &Source,
    ) -> Result<Option<DeepSettings>, ConfigError> {
        let Some(section) = &self.deep else { return Ok(None) };
        let deep = section.get_ref();
        if let Some(share) = &deep.gpu_memory_max
            && !(0.0..=1.0).contains(share.get_ref())
        {
            let remedy = "write it as a share, e.g. 0.95";
            return Err(source.fault(share.span(), "the share is not within 0 to 1", remedy));
        }
        let request = match (&deep.path, &deep.body) {
            (Some(path), Some(body)) => {
                check_json(body, source)?;
                if !path.get_ref().starts_with('/') {
                    let remedy = "write it as /v1/completions";
                    return Err(source.fault(path.span(), "a path starts with a slash", remedy));
                }
                Some(DeepRequest::json(path.get_ref().clone(), body.get_ref().clone().into()))
            }
            (None, None) => {
                // A kind that was left out may turn out to generate text.
                if let Some(kind) = self.kind().filter(|kind| !kind.generates_text()) {
                    let message = format!("a server of kind {kind} generates no text");
                    let remedy = "give path and body of an inference";
                    return Err(source.fault(section.span(), message, remedy));
                }
                None
            }
            _ => {
                let remedy = "give both, or neither for a single generated token";
                return Err(source.fault(section.span(), "path or body is missing", remedy));
            }
        };
        let interval_ms = deep.interval_ms.unwrap_or(defaults.health.deep_interval_ms);
        let timeout_ms = deep.timeout_ms.unwrap_or(defaults.health.deep_timeout_ms);
        Ok(Some(DeepSettings {
            request,
            expect: deep.expect.clone(),
            interval: Duration::from_millis(interval_ms),
            timeout: Duration::from_millis(timeout_ms),
            gpu_memory_use_max: deep.gpu_memory_max.as_ref().map(|share| *share.get_ref()),
        }))
    }

    fn notice(&self, source: &Source) -> Result<Option<NoticeCheck>, ConfigError> {
        let Some(url) = &self.notice_url else { return Ok(None) };
        let remedy = "write it as http://host:port/path";
        let fault = |message: &str| source.fault(url.span(), message, remedy);
        let uri: Uri = url.get_ref().parse().map_err(|_| fault("not a URL"))?;
        let host = uri.host().map(|host| host.trim_matches(['[', ']']).to_owned());
        match (uri.scheme_str(), host) {
            // The check speaks no TLS, so https is refused here and not asked for in cleartext.
            (Some("http"), Some(host)) if !host.is_empty() => {
                check_host(source, url, &host)?;
                let port = uri.port_u16().unwrap_or(80);
                Ok(Some(NoticeCheck::new(host, port, uri.path().to_owned())))
            }
            _ => Err(fault("the URL is not http:// with a host")),
        }
    }

    fn metrics_settings(
        &self,
        defaults: &CareDefaults,
        source: &Source,
    ) -> Result<MetricsSettings, ConfigError> {
        let metrics = &self.metrics;
        let mapping = match &metrics.mapping {
            None => None,
            Some(name) => {
                Some(defaults.mappings.get(name.get_ref()).cloned().ok_or_else(|| {
                    let message = format!("there is no mapping {:?}", name.get_ref());
                    source.fault(name.span(), message, "add it as [mapping.NAME]")
                })?)
            }
        };
        // A kind that was left out may turn out to have metrics.
        let has_none = self.kind().filter(|kind| mapping.is_none() && kind.metrics().is_none());
        if let Some(kind) = has_none.filter(|_| metrics.scrape == Some(true)) {
            let message = format!("nothing is known of the metrics of kind {kind}");
            return Err(source.fault(self.name.span(), message, "give metrics.mapping"));
        }
        Ok(MetricsSettings {
            scrape: metrics.scrape,
            path: metrics.path.clone(),
            port: metrics.port,
            mapping,
            period: metrics.period_ms.map(Duration::from_millis),
            dcgm_port: metrics.dcgm_port,
        })
    }
}

fn check_json(body: &Spanned<String>, source: &Source) -> Result<(), ConfigError> {
    match serde_json::from_str::<serde::de::IgnoredAny>(body.get_ref()) {
        Ok(_) => Ok(()),
        Err(error) => {
            let message = format!("the body is no JSON: {error}");
            Err(source.fault(body.span(), message, "e.g. body = '{\"prompt\": \"1+1=\"}'"))
        }
    }
}
